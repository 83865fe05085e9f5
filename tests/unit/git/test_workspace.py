from __future__ import annotations

import concurrent.futures
import os
import subprocess
from pathlib import Path

import pytest

from orchestrator import layout
from orchestrator.errors import GitError
from orchestrator.git.dispose import dispose_workspace
from orchestrator.git.repository import open_repository
from orchestrator.git.workspace import Workspace, export_tree


def inside(workspace: Workspace, *args: str) -> str:
    """Run git as the student would, with the places of a container mapped to the host's."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_DIR": str(workspace.git_dir),
        "GIT_WORK_TREE": str(workspace.tree),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(workspace.repo.common_dir / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    done = subprocess.run(["git", *args], cwd=workspace.tree, env=environment, capture_output=True, check=True)
    return done.stdout.decode().strip()


def contents(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if (path.is_symlink() or path.is_file()) and path.name != ".git"
    }


def test_a_workspace_holds_the_base_and_changes_nothing_of_the_users(kit, school, repo_path, owner):
    """R-55; the user's tree, index, configuration, hooks, stash and branch are compared byte for byte."""
    (repo_path / "src/a.py").write_text("stashed\n")
    kit.git(repo_path, "stash", "-q")
    kit.git(repo_path, "config", "user.name", "Ada")
    marker = repo_path.parent / "hook-ran"
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        script = repo_path / ".git/hooks" / hook
        script.write_text(f"#!/bin/sh\ntouch {marker}\n")
        script.chmod(0o755)
    (repo_path / "README").write_text("uncommitted\n")
    (repo_path / "staged").write_text("s")
    kit.git(repo_path, "add", "staged", config=("core.hooksPath=/dev/null",))
    before = kit.snapshot(repo_path)
    workspace = school.workspace(repo_path, owner=owner)
    assert contents(workspace.tree) == {"README": b"read me\n", "src/a.py": b"a = 1\n", "src/b.py": b"b = 2\n"}
    assert kit.snapshot(repo_path) == before
    assert dispose_workspace(workspace)
    assert kit.snapshot(repo_path) == before
    assert not (repo_path / ".git/worktrees").exists()
    assert not marker.exists()


def test_the_worktree_is_listed_and_locked_so_that_nobody_prunes_it(kit, school, repo_path):
    workspace = school.workspace(repo_path)
    (workspace.tree / ".git").rename(workspace.folder / "away")
    kit.git(repo_path, "worktree", "prune", "--expire=now")
    listed = kit.git(repo_path, "worktree", "list", "--porcelain")
    assert f"worktree {workspace.tree}" in listed
    assert "locked school" in listed


def test_the_students_own_git_works(kit, school, repo_path, owner):
    kit.git(repo_path, "tag", "-am", "first", "v1.0")
    kit.git(repo_path, "tag", "light")
    workspace = school.workspace(repo_path, owner=owner)
    assert inside(workspace, "status", "--porcelain") == ""
    assert inside(workspace, "describe") == "v1.0"
    assert inside(workspace, "tag").split() == ["light", "v1.0"]
    assert inside(workspace, "rev-parse", "main", "student", "v1.0^{commit}").split() == [workspace.base_sha] * 3
    (workspace.tree / "README").write_text("mine\n")
    (workspace.tree / ".hermes/briefs").mkdir(parents=True)
    (workspace.tree / ".hermes/briefs/b.json").write_text("{}")
    assert inside(workspace, "status", "--porcelain") == "M README"
    inside(workspace, "commit", "-qam", "Mine")
    assert inside(workspace, "log", "--format=%an %s", "-1") == "Student Mine"
    assert inside(workspace, "rev-parse", "--abbrev-ref", "HEAD") == "student"
    inside(workspace, "fsck", "--strict")
    assert workspace.pointer.read_text() == f"gitdir: {layout.GIT_DIR}\n"
    assert (workspace.git_dir / "objects/info/alternates").read_text() == f"{layout.OBJECTS}\n"


def test_the_student_need_not_read_every_file_again_for_its_first_status(kit, school, repo_path, owner):
    workspace = school.workspace(repo_path, owner=owner)
    listing = inside(workspace, "-c", "core.trustctime=true", "ls-files", "--debug")
    status = (workspace.tree / "README").lstat()
    assert f"ctime: {status.st_ctime_ns // 10**9}:{status.st_ctime_ns % 10**9}" in listing
    assert f"uid: {status.st_uid}" in listing
    if owner:
        assert (status.st_uid, status.st_gid) == owner
        everything = [workspace.tree, *workspace.tree.rglob("*"), workspace.git_dir, *workspace.git_dir.rglob("*")]
        own = {workspace.tree / ".git"}  # under the mounted pointer
        assert {path.lstat().st_uid for path in {*everything, workspace.pointer} - own} == {owner[0]}
        assert workspace.trusted.stat().st_uid == 0


def test_a_workspace_from_every_kind_of_repository(kit, school, repo_path, tmp_path):
    kit.write(repo_path, {"deep/er/c.py": "c\n"})
    kit.git(repo_path, "add", "-A")
    kit.git(repo_path, "commit", "-qm", "More")
    kit.git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo_path}", "shallow")
    kit.git(tmp_path, "clone", "-q", str(repo_path), "sparse")
    kit.git(tmp_path / "sparse", "sparse-checkout", "set", "--sparse-index", "src")
    kit.git(repo_path, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    kit.git(tmp_path, "clone", "-q", "--shared", str(repo_path), "alternate")
    kit.git(tmp_path, "clone", "-q", str(repo_path), "spaced ünd grün")
    kit.git(tmp_path, "clone", "-q", str(repo_path), "separate", "--separate-git-dir", str(tmp_path / "sep.git"))
    kit.make(tmp_path / "sha256", {"deep/er/c.py": "c\n"}, object_format="sha256")
    names = ("shallow", "sparse", "linked", "alternate", "spaced ünd grün", "separate", "sha256")
    for name in names:
        before = kit.snapshot(tmp_path / name)
        workspace = school.workspace(tmp_path / name)
        assert contents(workspace.tree)["deep/er/c.py"] == b"c\n", name
        assert inside(workspace, "status", "--porcelain") == "", name
        assert len(inside(workspace, "log", "--format=%H").split()) == (1 if name in {"shallow", "sha256"} else 2), name
        (workspace.tree / "deep/er/c.py").write_text("d\n")
        assert inside(workspace, "status", "--porcelain") == "M deep/er/c.py", name
        assert dispose_workspace(workspace), name
        assert kit.snapshot(tmp_path / name) == before, name


def test_nested_alternates_are_named_as_mounts_at_their_own_paths(kit, school, repo_path, tmp_path):
    kit.git(tmp_path, "clone", "-q", "--shared", str(repo_path), "one")
    kit.git(tmp_path, "clone", "-q", "--shared", str(tmp_path / "one"), "two")
    workspace = school.workspace(tmp_path / "two")
    assert [(str(store.host), store.inside) for store in workspace.object_mounts] == [
        (str(tmp_path / "two/.git/objects"), layout.OBJECTS),
        *[(str(tmp_path / name / ".git/objects"),) * 2 for name in ("one", "repo")],
    ]


def test_reachable_objects_hold_the_base_and_no_other_branch(kit, school, repo_path):
    kit.git(repo_path, "tag", "-am", "first", "v1")
    kit.git(repo_path, "switch", "-qc", "secret")
    kit.write(repo_path, {"secret": "password\n"})
    kit.git(repo_path, "add", "-A")
    kit.git(repo_path, "commit", "-qm", "Secret")
    kit.git(repo_path, "tag", "hidden")
    secret = kit.git(repo_path, "rev-parse", "HEAD:secret")
    kit.git(repo_path, "switch", "-q", "main")
    workspace = school.workspace(repo_path, objects="reachable")
    assert workspace.object_mounts == ()
    alone = ["git", "-c", "safe.directory=*", f"--git-dir={workspace.git_dir}"]
    subprocess.run([*alone, "fsck", "--strict"], check=True, capture_output=True)
    assert subprocess.run([*alone, "cat-file", "-e", secret], check=False, capture_output=True).returncode == 1
    assert subprocess.run([*alone, "describe"], check=True, capture_output=True).stdout == b"v1\n"


def test_base_content_is_raw_whatever_filters_and_conversions_the_user_has(kit, school, tmp_path):
    """LFS pointers stay pointers; no filter of the user's runs on what a tree's attributes choose."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
    path = kit.make(
        tmp_path / "lfs",
        {"big.bin": pointer, "t.txt": "a\nb\n", "id.c": "$Id$\n", "u.txt": "ä\n"},
    )
    kit.write(
        path, {".gitattributes": "*.bin filter=lfs\n*.txt eol=crlf\n*.c ident\nu.txt working-tree-encoding=UTF-16\n"}
    )
    kit.git(path, "add", ".gitattributes")
    kit.git(path, "commit", "-qm", "Attributes")
    marker = tmp_path / "ran"
    kit.git(path, "config", "filter.lfs.smudge", f"touch {marker}; cat")
    kit.git(path, "config", "filter.lfs.required", "true")
    kit.git(path, "config", "core.autocrlf", "true")
    repo = open_repository(path)
    assert repo.lfs
    workspace = school.workspace(repo)
    tree = contents(workspace.tree)
    assert (tree["big.bin"], tree["t.txt"], tree["id.c"], tree["u.txt"]) == (
        pointer.encode(),
        b"a\nb\n",
        b"$Id$\n",
        "ä\n".encode(),
    )
    assert inside(workspace, "status", "--porcelain") == ""
    assert not marker.exists()


def make_super(kit, tmp_path: Path) -> Path:
    inner = kit.make(tmp_path / "inner", {"i.txt": "inner\n"})
    lib = kit.make(tmp_path / "lib", {"l.txt": "lib\n"})
    kit.git(lib, "submodule", "--quiet", "add", str(inner), "in/ner")
    kit.git(lib, "commit", "-qam", "Inner")
    top = kit.make(tmp_path / "super", {"top.txt": "top\n"})
    kit.git(top, "submodule", "--quiet", "add", "--name", "a name", str(lib), "vendor/lib")
    kit.git(top, "submodule", "--quiet", "add", str(inner), "gone")
    kit.git(top, "submodule", "--quiet", "update", "--init", "--recursive")
    kit.git(top, "commit", "-qam", "Submodules")
    kit.git(top, "submodule", "--quiet", "deinit", "gone")
    subprocess.run(["rm", "-rf", str(top / ".git/modules/gone")], check=True)
    return top


def test_submodules_are_filled_from_the_users_repository_or_named_as_missing(kit, school, tmp_path, owner):
    top = make_super(kit, tmp_path)
    before = kit.snapshot(top)
    workspace = school.workspace(top, owner=owner)
    assert [sub.path for sub in workspace.submodules] == ["vendor/lib", "vendor/lib/in/ner"]
    assert workspace.missing_submodules == ("gone",)
    tree = contents(workspace.tree)
    assert tree["vendor/lib/l.txt"] == b"lib\n"
    assert tree["vendor/lib/in/ner/i.txt"] == b"inner\n"
    assert [path for path in workspace.tree.rglob(".git") if path != workspace.tree / ".git"] == []
    assert inside(workspace, "status", "--porcelain") == ""
    if owner:
        assert (workspace.tree / "vendor/lib/in/ner/i.txt").stat().st_uid == owner[0]
    assert kit.snapshot(top) == before
    assert open_repository(top).submodules == ("vendor/lib", "gone")


def test_a_partial_clone_fetches_what_the_base_needs(kit, school, repo_path, tmp_path):
    kit.git(repo_path, "config", "uploadpack.allowFilter", "true")
    kit.git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repo_path}", "partial")
    repo = open_repository(tmp_path / "partial")
    assert repo.partial
    assert contents(school.workspace(repo).tree)["README"] == b"read me\n"


def test_a_commit_that_is_not_there_fails_and_leaves_nothing(kit, school, repo):
    before = kit.snapshot(repo.root)
    with pytest.raises(GitError):
        school.workspace(repo, "1" * 40)
    assert list((school.root / "leaves" / "bead-1").iterdir()) == []
    assert not (repo.common_dir / "worktrees").exists()
    assert kit.snapshot(repo.root) == before


def test_eight_workspaces_at_once_on_one_repository(kit, school, repo):
    """R-27: no clash of names or of git's own locks."""
    kit.git(repo.root, "config", "extensions.worktreeConfig", "true")
    folders = [school.root / f"bead-{number}" for number in range(8)]

    def make(folder: Path) -> Workspace:
        return Workspace.create(repo, repo.head_sha, folder, name="study-coder-00000000", lock_dir=school.locks)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, folders))
        assert kit.git(repo.root, "worktree", "list").count("study-coder") == 8
        assert all(contents(workspace.tree)["README"] == b"read me\n" for workspace in made)
        assert all(pool.map(dispose_workspace, made))
    assert kit.git(repo.root, "worktree", "list").count("\n") == 0


def test_a_workspace_is_found_again_by_a_later_process(school, repo, owner):
    """R-49."""
    workspace = school.workspace(repo, owner=owner)
    assert Workspace.load(workspace.folder, lock_dir=school.locks) == workspace
    (workspace.trusted / "state.json").unlink()
    with pytest.raises(GitError, match="no finished workspace"):
        Workspace.load(workspace.folder, lock_dir=school.locks)


def test_a_clean_tree_for_verification_is_unknown_to_the_repository(kit, school, repo, owner):
    tree = export_tree(repo, repo.head_sha, school.root / "verify", lock_dir=school.locks, owner=owner)
    assert contents(tree.tree)["README"] == b"read me\n"
    assert (tree.tree / ".git").read_bytes() == b""
    assert kit.git(repo.root, "worktree", "list").count("\n") == 0
    assert dispose_workspace(tree)
    assert list(tree.folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work in another user's repository")
def test_what_root_makes_in_somebodys_repository_is_theirs(kit, school, repo_path):
    for folder, _, files in os.walk(repo_path):
        for name in ("", *files):
            os.chown(Path(folder, name), 10002, 10002)
    workspace = school.workspace(repo_path, owner=(10001, 10001))
    made = [repo_path / ".git/worktrees", *(repo_path / ".git/worktrees").rglob("*")]
    assert {path.stat().st_uid for path in made} == {10002}
    assert dispose_workspace(workspace)
