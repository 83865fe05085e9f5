from __future__ import annotations

import os
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import GitError
from orchestrator.git.dispose import dispose_workspace
from orchestrator.git.freeze import FileChange, freeze
from orchestrator.git.gitdir import Identity
from orchestrator.git.landing import keep
from orchestrator.git.workspace import Workspace


def student_git(workspace: Workspace, *args: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_DIR": str(workspace.git_dir),
        "GIT_WORK_TREE": str(workspace.tree),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(workspace.repo.common_dir / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    done = subprocess.run(["git", *args], cwd=workspace.tree, env=environment, capture_output=True, check=True)
    return done.stdout.decode().strip()


def land(workspace: Workspace, frozen) -> str:
    assert frozen.head_sha is not None
    keep(workspace, "bead-1", frozen.head_sha)
    return frozen.head_sha


def kinds(frozen) -> dict[str, str]:
    return {notice.path: notice.kind for notice in frozen.notices}


def test_a_tree_nobody_touched_gives_no_commit(school, repo, owner):
    workspace = school.workspace(repo, owner=owner)
    (workspace.tree / "src/a.py").touch()  # another time, the same content
    frozen = freeze(workspace, "Nothing")
    assert (frozen.head_sha, frozen.files_changed, frozen.notices) == (None, (), ())


def test_an_edit_of_the_same_size_right_after_the_hand_over_is_seen(school, repo, owner):
    workspace = school.workspace(repo, owner=owner)
    with (workspace.tree / "src/a.py").open("r+") as file:
        file.write("A")
    assert [change.path for change in freeze(workspace, "One").files_changed] == ["src/a.py"]


def test_an_edit_that_hides_behind_an_old_modification_time_is_seen(school, repo):
    workspace = school.workspace(repo)
    path = workspace.tree / "src/a.py"
    times = path.stat()
    path.write_text("a = 2\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [change.path for change in freeze(workspace, "One").files_changed] == ["src/a.py"]


def test_every_sort_of_change_is_one_commit_on_the_base(kit, school, repo, owner):
    workspace = school.workspace(repo, owner=owner)
    tree = workspace.tree
    (tree / "README").unlink()
    (tree / "src/a.py").write_text("a = 1\nb\n")
    (tree / "src/b.py").chmod(0o755)
    (tree / "link").symlink_to("/etc/passwd")
    kit.write(tree, {"bin": b"\0\1\2", 'ünï/ "q"\\\n.py': "odd\n", ":(top)x": "colon\n"})
    (tree / "README").mkdir()
    (tree / "README/now a folder").write_text("f\n")
    frozen = freeze(workspace, "Change\n\nWhy.", Identity("School <x>", "s@example.org"), when=1_700_000_000)
    head = land(workspace, frozen)
    assert kit.git(repo.root, "log", "-1", "--format=%an|%ae|%cn|%at|%P|%B", head) == (
        f"School x|s@example.org|School x|1700000000|{workspace.base_sha}|Change\n\nWhy."
    )
    assert frozen.tree == kit.git(repo.root, "rev-parse", f"{head}^{{tree}}")
    assert kit.files(repo.root, head) == {
        "README/now a folder": ("100644", b"f\n"),
        "src/a.py": ("100644", b"a = 1\nb\n"),
        "src/b.py": ("100755", b"b = 2\n"),
        "link": ("120000", b"/etc/passwd"),
        "bin": ("100644", b"\0\1\2"),
        'ünï/ "q"\\\n.py': ("100644", b"odd\n"),
        ":(top)x": ("100644", b"colon\n"),
    }
    changes = {change.path: change for change in frozen.files_changed}
    assert changes["src/a.py"] == FileChange("src/a.py", "M", 1, 0, False, "100644", "100644")
    assert changes["src/b.py"] == FileChange("src/b.py", "M", 0, 0, False, "100644", "100755")
    assert changes["README"] == FileChange("README", "D", 0, 1, False, "100644", "000000")
    assert changes["bin"] == FileChange("bin", "A", 0, 0, True, "000000", "100644")
    assert list(changes) == sorted(changes, key=os.fsencode)
    kit.git(repo.root, "fsck", "--strict", "--no-dangling", head)


def test_a_folder_that_became_a_file_and_a_file_that_became_a_link(kit, school, repo):
    workspace = school.workspace(repo)
    subprocess.run(["rm", "-rf", str(workspace.tree / "src"), str(workspace.tree / "README")], check=True)
    (workspace.tree / "src").write_text("file\n")
    (workspace.tree / "README").symlink_to("src")
    frozen = freeze(workspace, "Swap")
    assert kit.files(repo.root, land(workspace, frozen)) == {"src": ("100644", b"file\n"), "README": ("120000", b"src")}
    assert {change.path: change.status for change in frozen.files_changed}["README"] == "T"


def test_the_bases_ignore_rules_hold_and_the_students_do_not(kit, school, tmp_path):
    path = kit.make(
        tmp_path / "r",
        {
            ".gitignore": "*.log\nbuild/\n!keep.log\n",
            "sub/.gitignore": "/local\n",
            "sub/x": "x\n",
            "tracked.txt": "t\n",
        },
    )
    workspace = school.workspace(path)
    kit.write(
        workspace.tree,
        {
            ".gitignore": "*\n!build/\n",
            "sub/.gitignore": "x\n",
            ".gitattributes": "* export-ignore\n",
            "a.log": "",
            "keep.log": "",
            "build/out": "",
            "sub/local": "",
            "local": "",
            "new.py": "",
            ".hermes/briefs/b.json": "",
            ".hermes/outputs/o": "",
            ".hermes/other": "",
            "tracked.txt": "changed\n",
        },
    )
    frozen = freeze(workspace, "Hide")
    files = kit.files(path, land(workspace, frozen))
    assert sorted(files) == sorted(
        [
            ".gitattributes",
            ".gitignore",
            ".hermes/other",
            "keep.log",
            "local",
            "new.py",
            "sub/.gitignore",
            "sub/x",
            "tracked.txt",
        ]
    )
    assert files[".gitignore"][1] == b"*\n!build/\n"
    assert files["tracked.txt"][1] == b"changed\n"
    assert frozen.ignored == 5


def test_what_git_cannot_store_is_reported_and_the_rest_is_frozen(kit, school, repo):
    workspace = school.workspace(repo)
    tree = workspace.tree
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(tree, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/sock")
        os.close(here)
    (tree / "README").write_bytes(b"x" * 2000)
    (tree / "big").write_bytes(b"x" * 2001)
    (tree / "src/a.py").write_bytes(b"y" * 2001)
    kit.write(tree, {"d/.GIT/config": "x", "d/git~1": "x", "fine": "x"})
    (tree / ".gitmodules").symlink_to("README")
    frozen = freeze(workspace, "Odd", max_file_bytes=2000)
    assert kinds(frozen) == {
        "pipe": "special_file",
        "sock": "special_file",
        "big": "too_large",
        "src/a.py": "too_large",
        "d/.GIT": "unstorable_name",
        "d/git~1": "unstorable_name",
        ".gitmodules": "unstorable_name",
    }
    assert [change.path for change in frozen.files_changed] == ["README", "fine"]
    assert kit.files(repo.root, land(workspace, frozen))["src/a.py"] == ("100644", b"a = 1\n")


def test_files_and_folders_without_any_permission_are_read_all_the_same(kit, school, repo):
    workspace = school.workspace(repo)
    kit.write(workspace.tree, {"closed/deep/f": "f\n", "src/a.py": "closed\n"})
    (workspace.tree / "src/a.py").chmod(0)
    (workspace.tree / "closed/deep").chmod(0)
    (workspace.tree / "closed").chmod(0)
    frozen = freeze(workspace, "Closed")
    assert kinds(frozen) == {}
    assert [change.path for change in frozen.files_changed] == ["closed/deep/f", "src/a.py"]


def test_a_nested_repository_is_taken_as_files_and_reported(kit, school, repo):
    workspace = school.workspace(repo)
    nested = workspace.tree / "vendored"
    kit.make(nested, {"v.txt": "v\n", "deep/w.txt": "w\n"})
    (workspace.tree / "fake").mkdir()
    (workspace.tree / "fake/.git").write_text("gitdir: /etc\n")
    (workspace.tree / "fake/f").write_text("f\n")
    frozen = freeze(workspace, "Nested")
    assert kinds(frozen) == {"vendored": "nested_repository", "fake": "nested_repository"}
    assert [change.path for change in frozen.files_changed] == ["fake/f", "vendored/deep/w.txt", "vendored/v.txt"]
    assert {change.new_mode for change in frozen.files_changed} == {"100644"}


def test_changes_inside_submodules_are_reported_and_not_part_of_the_result(kit, school, tmp_path):
    lib = kit.make(tmp_path / "lib", {"l.txt": "lib\n"})
    top = kit.make(tmp_path / "super", {"top.txt": "top\n"})
    for name in ("filled", "missing", "removed"):
        kit.git(top, "submodule", "--quiet", "add", str(lib), name)
    kit.git(top, "commit", "-qam", "Submodules")
    subprocess.run(["rm", "-rf", str(top / ".git/modules/missing")], check=True)
    workspace = school.workspace(top)
    assert workspace.missing_submodules == ("missing",)
    untouched = freeze(workspace, "Nothing")
    assert (untouched.head_sha, untouched.notices) == (None, ())
    kit.write(workspace.tree, {"filled/l.txt": "edited\n", "filled/new": "", "missing/lost": "", "top.txt": "mine\n"})
    subprocess.run(["rm", "-rf", str(workspace.tree / "removed")], check=True)
    kit.git(workspace.tree / "filled", "init", "-q")
    kit.git(workspace.tree / "filled", "commit", "-q", "--allow-empty", "-m", "Mine")
    frozen = freeze(workspace, "Submodules")
    details = {notice.path: notice.detail for notice in frozen.notices if notice.kind == "submodule_changed"}
    assert "l.txt, new" in details["filled"]
    assert "lost" in details["missing"]
    assert [(change.path, change.status) for change in frozen.files_changed] == [("removed", "D"), ("top.txt", "M")]


def test_the_students_commits_are_squashed_and_their_messages_kept(kit, school, repo, owner):
    workspace = school.workspace(repo, owner=owner)
    (workspace.tree / "one").write_text("1")
    student_git(workspace, "add", "-A")
    student_git(workspace, "commit", "-qm", "First\n\nBody\x1b[31m red")
    student_git(workspace, "switch", "-qc", "other")
    (workspace.tree / "two").write_text("2")
    student_git(workspace, "add", "-A")
    student_git(workspace, "commit", "-qm", "Second\n\nSigned-off-by: Somebody <x@y>")
    student_git(workspace, "pack-refs", "--all")
    (workspace.tree / "three").write_text("not committed")
    frozen = freeze(workspace, "Task")
    assert frozen.student_messages == ("First\n\nBody [31m red", "Second\n\nSigned-off-by: Somebody <x@y>")
    head = land(workspace, frozen)
    body = kit.git(repo.root, "log", "-1", "--format=%B", head)
    assert body.startswith("Task\n\nThe student's own commits:\n\n    First\n")
    assert kit.git(repo.root, "log", "-1", "--format=%(trailers)", head) == ""
    assert kit.git(repo.root, "rev-list", "--count", f"{workspace.base_sha}..{head}") == "1"
    assert {"one", "two", "three"} <= kit.files(repo.root, head).keys()


def test_a_deep_tree_is_frozen_as_far_as_git_can_check_it_out_again(school, repo):
    workspace = school.workspace(repo)
    here = os.open(workspace.tree, os.O_RDONLY)
    for _ in range(300):  # 300 folders of 20 bytes: beyond any path's length
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    frozen = freeze(workspace, "Deep")
    assert {notice.kind for notice in frozen.notices} == {"path_too_long"}
    assert len(frozen.files_changed) == 3800 // 21
    assert dispose_workspace(workspace)


def test_a_missing_trusted_index_is_an_error_not_an_empty_result(school, repo):
    workspace = school.workspace(repo)
    workspace.index.unlink()
    with pytest.raises(GitError, match="trusted index"):
        freeze(workspace, "Lost")


def test_sha256_and_names_that_are_not_utf8(kit, school, tmp_path):
    path = kit.make(tmp_path / "r", object_format="sha256")
    workspace = school.workspace(path)
    Path(os.fsdecode(os.fsencode(workspace.tree) + b"/\xff\xfe")).write_text("odd")
    (workspace.tree / "README").write_text("new\n")
    frozen = freeze(workspace, "Odd")
    assert [os.fsencode(change.path) for change in frozen.files_changed] == [b"README", b"\xff\xfe"]
    assert len(land(workspace, frozen)) == 64


names = st.sampled_from(["README", "src", "a.py", "b.py", "x", "ä", "-n", "sp ace", "new\nline", "*", ".gitattributes"])
content = st.one_of(
    st.binary(max_size=30), st.sampled_from([b"a = 1\n", b"* text eol=crlf ident filter=x\n", b"a\r\nb\r\n"])
)
steps = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "chmod", "link"]), st.lists(names, min_size=1, max_size=3), content),
    max_size=8,
)


def act(root: Path, verb: str, parts: list[str], data: bytes) -> None:
    path = root.joinpath(*parts)
    for parent in reversed(path.relative_to(root).parents[:-1]):
        place = root / parent
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(exist_ok=True)
    if verb == "chmod":
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ stat.S_IXUSR)
        return
    subprocess.run(["rm", "-rf", "--", str(path)], check=True)
    if verb == "write":
        path.write_bytes(data)
    elif verb == "link":
        path.symlink_to(os.fsdecode(data.replace(b"\0", b"") or b"x"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_freezing_any_edit_reproduces_exactly_the_tree(kit, school, repo, edits):
    workspace = school.workspace(repo)
    try:
        for verb, parts, data in edits:
            act(workspace.tree, verb, parts, data)
        expected = {}
        for path in workspace.tree.rglob("*"):
            name = str(path.relative_to(workspace.tree))
            if path.is_symlink():
                expected[name] = ("120000", os.fsencode(path.readlink()))
            elif path.is_file() and name != ".git":
                expected[name] = ("100755" if path.stat().st_mode & stat.S_IXUSR else "100644", path.read_bytes())
        frozen = freeze(workspace, "Edit")
        sha = frozen.head_sha or workspace.base_sha
        if frozen.head_sha:
            keep(workspace, f"bead-{school.count}", sha)
        assert kit.files(repo.root, sha) == expected
        assert not frozen.notices
        base = kit.files(repo.root, workspace.base_sha)
        assert {change.path for change in frozen.files_changed} == {
            name for name in base.keys() | expected.keys() if base.get(name) != expected.get(name)
        }
    finally:
        assert dispose_workspace(workspace)


def test_a_file_is_read_again_only_when_its_status_says_so(school, repo, owner, monkeypatch):
    """The hand-over's change of owner must not make the freeze read the whole tree."""
    from orchestrator.git import scan

    workspace = school.workspace(repo, owner=owner)
    later = workspace.handed_over_ns + 1_000_000_000
    read: list[bytes] = []
    real = scan.open_regular
    monkeypatch.setattr(scan, "open_regular", lambda path: read.append(path) or real(path))
    (workspace.tree / "src/a.py").write_text("a = 2\n")
    frozen = freeze(replace(workspace, handed_over_ns=later), "One")
    assert [change.path for change in frozen.files_changed] == ["src/a.py"]
    assert {path.rpartition(b"/")[2] for path in read} == {b"a.py"}


def test_freezing_twice_and_after_a_crash_gives_the_same_tree(school, repo):
    workspace = school.workspace(repo)
    (workspace.tree / "n").write_text("n")
    first = freeze(workspace, "Once", when=1)
    (workspace.trusted / "objects/pack/tmp_pack_left").write_bytes(b"PACK")
    second = freeze(Workspace.load(workspace.folder, lock_dir=school.locks), "Once", when=1)
    assert first == second
    land(workspace, second)
