"""A student's tree and git dir as an attacker would leave them. Each of these ran code, or got further, somewhere once."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.git.dispose import dispose_workspace
from orchestrator.git.freeze import freeze
from orchestrator.git.landing import diff, diffstat, keep
from orchestrator.git.messages import clean, commit_text, student_messages
from orchestrator.git.scan import _storable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trap(tmp_path: Path) -> tuple[Path, str]:
    """A file that must not appear, and the command that would make it."""
    marker = tmp_path / "ran"
    return marker, f"touch {marker}; cat"


def evil_config(command: str) -> str:
    return (
        f'[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "{command}"\n\thooksPath = hooks\n\tpager = "{command}"\n'
        f'\tsshCommand = "{command}"\n\teditor = "{command}"\n\tworktree = /\n[diff]\n\texternal = "{command}"\n'
        f'[filter "evil"]\n\tclean = "{command}"\n\tsmudge = "{command}"\n\tprocess = "{command}"\n\trequired = true\n'
        f'[diff "evil"]\n\ttextconv = "{command}"\n\tcommand = "{command}"\n[gpg]\n\tprogram = "{command}"\n'
        f"[commit]\n\tgpgSign = true\n[include]\n\tpath = /etc/passwd\n"
    )


def evil_git_dir(path: Path, command: str) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)
    for folder in ("objects", "refs", "hooks"):
        (path / folder).mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "config").write_text(evil_config(command))
    for hook in ("post-checkout", "pre-commit", "post-commit", "reference-transaction", "post-index-change", "update"):
        (path / "hooks" / hook).write_text(f"#!/bin/sh\n{command}\n")
        (path / "hooks" / hook).chmod(0o755)


def whole_way(workspace, kit):
    """Freeze, keep, look at and dispose, as the principal does."""
    frozen = freeze(workspace, "Way")
    if frozen.head_sha:
        keep(workspace, "bead-1", frozen.head_sha)
        diff(workspace.repo, workspace.base_sha, frozen.head_sha)
        diffstat(workspace.repo, workspace.base_sha, frozen.head_sha)
    assert dispose_workspace(workspace)
    return frozen


@pytest.mark.parametrize("place", [".git", "nested/.git", "sub/.git"])
def test_a_git_dir_planted_anywhere_runs_nothing(kit, school, tmp_path, trap, place):
    """Swapped .git, nested repository, repository at a gitlink."""
    lib = kit.make(tmp_path / "lib", {"l.txt": "lib\n"})
    path = kit.make(tmp_path / "r")
    kit.git(path, "submodule", "--quiet", "add", str(lib), "sub")
    kit.git(path, "commit", "-qam", "Sub")
    before = kit.snapshot(path)
    workspace = school.workspace(path)
    evil_git_dir(workspace.tree / place, trap[1])
    evil_git_dir(workspace.git_dir, trap[1])
    kit.write(
        workspace.tree,
        {
            "new": "x\n",
            ".gitattributes": "* filter=evil diff=evil\n",
            ".gitmodules": '[submodule "sub"]\n\tpath = sub\n\turl = ../x\n\tupdate = !touch /tmp/never\n\tfetchRecurseSubmodules = true\n',
        },
    )
    frozen = whole_way(workspace, kit)
    assert "new" in {change.path for change in frozen.files_changed}
    assert not trap[0].exists()
    assert kit.snapshot(path) == before


def test_a_filter_of_the_users_does_not_run_on_what_the_student_chooses(kit, school, repo_path, trap):
    evil = (
        "filter.evil.clean",
        "filter.evil.process",
        "filter.evil.smudge",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
    )
    for key in evil:
        kit.git(repo_path, "config", key, trap[1])
    kit.git(repo_path, "config", "filter.evil.required", "true")
    workspace = school.workspace(repo_path)
    kit.write(
        workspace.tree, {".gitattributes": "* filter=evil diff=evil ident\n", "README": "changed\n", "n": "$Id$\n"}
    )
    frozen = whole_way(workspace, kit)
    assert kit.files(repo_path, frozen.head_sha)["n"] == ("100644", b"$Id$\n")
    assert not trap[0].exists()


def test_attributes_of_the_student_do_not_hide_a_change_from_the_diff(kit, school, repo):
    workspace = school.workspace(repo)
    kit.write(
        workspace.tree, {".gitattributes": "* -diff binary export-ignore linguist-generated\n", "README": "evil\n"}
    )
    frozen = freeze(workspace, "Hide")
    keep(workspace, "bead-1", frozen.head_sha)
    subprocess.run(["cp", str(workspace.tree / ".gitattributes"), str(repo.root)], check=True)
    assert b"+evil\n" in diff(repo, workspace.base_sha, frozen.head_sha)
    assert diff(repo, workspace.base_sha, frozen.head_sha, [".gitattributes"]).count(b"diff --git") == 1
    assert not any(change.binary for change in frozen.files_changed)
    assert diffstat(repo, workspace.base_sha, frozen.head_sha) == frozen.files_changed


def test_links_lead_nowhere(kit, school, repo, tmp_path):
    outside = tmp_path / "outside"
    kit.write(outside, {"secret": "password\n", "deep/x": "x\n"})
    workspace = school.workspace(repo)
    subprocess.run(["rm", "-rf", str(workspace.tree / "src")], check=True)
    (workspace.tree / "src").symlink_to(outside)
    (workspace.tree / "README").unlink()
    (workspace.tree / "README").symlink_to(outside / "secret")
    (workspace.tree / "loop").symlink_to("loop")
    frozen = whole_way(workspace, kit)
    files = kit.files(repo.root, frozen.head_sha)
    assert files["src"] == ("120000", os.fsencode(outside))
    assert b"password\n" not in {data for _, data in files.values()}
    assert (outside / "secret").read_text() == "password\n"
    assert (outside / "deep/x").exists()


def test_a_submodule_replaced_by_a_link_is_not_walked(kit, school, tmp_path):
    lib = kit.make(tmp_path / "lib", {"l.txt": "lib\n"})
    path = kit.make(tmp_path / "r")
    kit.git(path, "submodule", "--quiet", "add", str(lib), "deep/sub")
    kit.git(path, "commit", "-qam", "Sub")
    workspace = school.workspace(path)
    subprocess.run(["rm", "-rf", str(workspace.tree / "deep/sub")], check=True)
    (workspace.tree / "deep/sub").symlink_to("/etc")
    frozen = freeze(workspace, "Link")
    assert frozen.notices == ()
    assert [(change.path, change.status, change.new_mode) for change in frozen.files_changed] == [
        ("deep/sub", "T", "120000")
    ]


def test_names_that_look_like_options_and_names_with_line_breaks(kit, school, repo):
    workspace = school.workspace(repo)
    odd = [
        "--exec=x",
        "-",
        "a\nD README",
        '"',
        "M 100644 inline x",
        "tab\there",
        " lead",
        "trail ",
        "CON",
        "readme",
        "a\\b",
    ]
    kit.write(workspace.tree, dict.fromkeys(odd, "x"))
    frozen = whole_way(workspace, kit)
    assert {change.path for change in frozen.files_changed} == set(odd)
    assert "README" in kit.files(repo.root, frozen.head_sha)


def loose(git_dir: Path, body: bytes, kind: bytes = b"commit") -> str:
    data = b"%s %d\0%s" % (kind, len(body), body)
    oid = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    path = git_dir / "objects" / oid[:2] / oid[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(data))
    return oid


def test_a_hostile_git_dir_yields_no_message_and_no_harm(kit, school, repo, tmp_path, trap):
    secret = kit.make(tmp_path / "secret", {"s": "s"})
    kit.git(secret, "commit", "-q", "--allow-empty", "-m", "a secret message")
    secret_head = kit.git(secret, "rev-parse", "HEAD")
    workspace = school.workspace(repo)
    git_dir, base = workspace.git_dir, workspace.base_sha

    def answer() -> tuple[tuple[str, ...], bool]:
        return student_messages(git_dir, base)

    assert answer() == ((), True)
    (git_dir / "HEAD").write_text(secret_head)
    (git_dir / "objects/info/alternates").write_text(f"{secret}/.git/objects\n")
    assert answer() == ((), False)  # another repository's objects are not reached through alternates
    subprocess.run(["rm", "-rf", str(git_dir / "objects")], check=True)
    (git_dir / "objects").symlink_to(secret / ".git/objects")
    assert answer() == ((), False)  # nor through a link
    (git_dir / "objects").unlink()
    for name in (
        "ref: ../../../../etc/passwd",
        "ref: refs/heads/../../config",
        "ref: refs/heads/" + "x" * 5000,
        "",
        "g" * 40,
    ):
        (git_dir / "HEAD").write_text(name)
        assert answer() == ((), False)
    (git_dir / "HEAD").unlink()
    os.mkfifo(git_dir / "HEAD")
    assert answer() == ((), False)
    (git_dir / "HEAD").unlink()
    bomb = loose(git_dir, b"tree x\n\n" + b"\0" * 50_000_000)
    (git_dir / "HEAD").write_text(bomb)
    assert answer() == ((), False)
    wrong = loose(git_dir, b"tree x\n\nfine\n")
    (git_dir / "objects" / wrong[:2] / wrong[2:]).write_bytes(zlib.compress(b"commit 3\0\n\nforged"))
    (git_dir / "HEAD").write_text(wrong)
    assert answer() == ((), False)
    tip = base
    for number in range(150):
        tip = loose(git_dir, f"tree x\nparent {tip}\n\nmessage {number}\n".encode())
    (git_dir / "HEAD").write_text(tip)
    messages, complete = answer()
    assert (len(messages), messages[-1], complete) == (100, "message 149", False)
    subprocess.run(["rm", "-rf", str(git_dir)], check=True)
    git_dir.symlink_to(secret / ".git")
    assert answer() == ((), False)
    (workspace.tree / "n").write_text("n")
    frozen = freeze(workspace, "Task")
    assert {notice.kind for notice in frozen.notices} == {"history_unread"}
    assert dispose_workspace(workspace)
    assert kit.git(secret, "rev-parse", "HEAD") == secret_head
    assert not trap[0].exists()


def test_messages_are_cleaned_clipped_and_indented():
    assert clean("a\x1b]0;x\x07\r\nb\u202e\tc\0") == "a ]0;x \nb  c"
    assert len(clean("x" * 10_000)) == 2_000
    text = commit_text("Task", ["Reviewed-by: me", *["y" * 2_000] * 20])
    assert "\nReviewed-by" not in text
    assert len(text) < 20_000
    assert "more)" in text


ODD = st.sampled_from(
    [
        ".git",
        ".GIT",
        "git~1",
        "GIT~2",
        ".gitmodules",
        "gitmod~1",
        "GI7EBA~1",
        ".gIt",
        "x",
        " ",
        ".",
        ":",
        "\\",
        "\u200c",
        "\ufeff",
        "\u206a",
        "...",
    ]
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("scratch")
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    return path


@settings(deadline=None)
@given(st.lists(ODD, min_size=1, max_size=4).map("".join), st.booleans())
def test_every_name_that_passes_is_one_that_git_takes(scratch, name, link):
    """Compared with git's own check (verify_path); what we refuse beyond it is only a name git would take, too."""
    if name in {".", ".."} or len(name) > 200:
        return
    mode = "120000" if link else "100644"
    empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    protect = ["-c", "core.protectNTFS=true", "-c", "core.protectHFS=true"]
    done = subprocess.run(
        [
            "git",
            f"--git-dir={scratch}",
            *protect,
            "update-index",
            "--add",
            "--info-only",
            "--cacheinfo",
            f"{mode},{empty},d/{name}",
        ],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "GIT_INDEX_FILE": f"{scratch}/scratch"},
    )
    if _storable(os.fsencode(name), is_link=link):
        assert done.returncode == 0, done.stderr
    else:
        assert ".git" in name.lower() or "~" in name or "\u200c" in name or "\ufeff" in name or "\u206a" in name


def test_a_socket_and_a_pipe_in_place_of_tracked_files_do_not_block(school, repo):
    workspace = school.workspace(repo)
    (workspace.tree / "README").unlink()
    os.mkfifo(workspace.tree / "README")
    (workspace.tree / "src/a.py").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(workspace.tree / "src", os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/a.py")
        os.close(folder)
    frozen = freeze(workspace, "Pipes")
    assert [(change.path, change.status) for change in frozen.files_changed] == [("README", "D"), ("src/a.py", "D")]
