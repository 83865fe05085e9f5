from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import GitError, RepositoryUnusableError, UsageError
from orchestrator.git.blobs import read_file_at, read_files_at
from orchestrator.git.repository import dirty_summary, list_tree, open_repository, resolve_base


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "does not exist"),
        ("file", "is not a folder"),
        ("plain", "not inside a git repository"),
        ("bare", "bare"),
        ("unborn", "no commit yet"),
        ("inside", "inside a git dir"),
    ],
)
def test_what_is_no_usable_repository_is_a_usage_error_with_a_next_step(kit, tmp_path, kind, words):
    path = tmp_path / kind
    if kind == "file":
        path.write_text("x")
    elif kind == "bare":
        path.mkdir()
        kit.git(path, "init", "-q", "--bare")
    elif kind == "unborn":
        path.mkdir()
        kit.git(path, "init", "-q")
    elif kind == "inside":
        path = kit.make(path) / ".git" / "objects"
    elif kind == "plain":
        path.mkdir()
    with pytest.raises(RepositoryUnusableError, match=words) as caught:
        open_repository(path)
    assert caught.value.next_step
    assert caught.value.exit_code == 2


def test_opening_from_a_subfolder_finds_the_top(repo_path):
    repo = open_repository(repo_path / "src")
    assert repo.root == repo_path
    assert repo.name == "repo"
    assert (repo.head_branch, repo.shallow, repo.sparse, repo.is_linked_worktree) == ("main", False, False, False)
    assert not repo.dirty
    assert repo.object_dirs == (repo_path / ".git" / "objects",)


def test_uncommitted_changes_are_counted_and_left_alone(kit, repo_path):
    (repo_path / "README").write_text("changed\n")
    (repo_path / "staged").write_text("s\n")
    kit.git(repo_path, "add", "staged")
    (repo_path / "new one").write_text("n\n")
    os.utime(repo_path / "src" / "a.py", (1, 1))  # stat-dirty: a refresh would rewrite the index
    before = kit.snapshot(repo_path)
    repo = open_repository(repo_path)
    assert (repo.dirty.staged, repo.dirty.unstaged, repo.dirty.untracked) == (1, 1, 1)
    assert str(repo.dirty) == "1 staged, 1 not staged, 1 untracked"
    assert kit.snapshot(repo_path) == before
    assert dirty_summary(repo) == repo.dirty


def test_a_linked_worktree_a_detached_head_and_a_shallow_sparse_clone_are_known_as_such(kit, repo_path, tmp_path):
    kit.write(repo_path, {"more": "1"})
    kit.git(repo_path, "add", "-A")
    kit.git(repo_path, "commit", "-qm", "More")
    kit.git(repo_path, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = open_repository(tmp_path / "linked")
    assert linked.is_linked_worktree
    assert linked.head_branch is None
    assert linked.common_dir == repo_path / ".git"
    kit.git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo_path}", "shallow")
    kit.git(tmp_path / "shallow", "sparse-checkout", "set", "src")
    shallow = open_repository(tmp_path / "shallow")
    assert shallow.shallow
    assert shallow.sparse


def test_nested_and_relative_alternates_are_all_found(kit, repo_path, tmp_path):
    kit.git(tmp_path, "clone", "-q", "--shared", str(repo_path), "one")
    kit.git(tmp_path, "clone", "-q", "--shared", str(tmp_path / "one"), "two")
    relative = os.path.relpath(tmp_path / "one/.git/objects", tmp_path / "two/.git/objects")
    (tmp_path / "two/.git/objects/info/alternates").write_text(f"# a comment\n{relative}\n")
    repo = open_repository(tmp_path / "two")
    assert repo.object_dirs == tuple(tmp_path / name / ".git" / "objects" for name in ("two", "one", "repo"))


def test_credentials_are_taken_out_of_the_remote(kit, repo_path):
    kit.git(repo_path, "remote", "add", "origin", "https://ada:secret@example.org/x.git?token=t")
    assert open_repository(repo_path).remote == "https://example.org/x.git"
    kit.git(repo_path, "remote", "set-url", "origin", "git@example.org:x.git")
    assert open_repository(repo_path).remote == "git@example.org:x.git"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's repository")
def test_another_users_repository_opens_without_running_its_filters_or_hooks(kit, repo_path, tmp_path):
    ran = tmp_path / "ran"
    kit.write(repo_path, {".gitattributes": "* filter=evil\n"})
    kit.git(repo_path, "add", "-A")
    kit.git(repo_path, "commit", "-qm", "Attributes")
    for key in ("filter.evil.clean", "filter.evil.process", "core.fsmonitor"):
        kit.git(repo_path, "config", key, f"touch {ran}; cat")
    (repo_path / "README").write_text("read YOU\n")  # same size, so only content can tell
    for folder, _, files in os.walk(repo_path):
        for name in ("", *files):
            os.chown(Path(folder, name), 10001, 10001)
    repo = open_repository(repo_path)
    assert repo.foreign
    assert repo.dirty.unstaged >= 1
    assert not ran.exists()


def test_a_base_is_resolved_and_an_option_is_not_taken_for_one(kit, repo):
    kit.git(repo.root, "tag", "-am", "v", "v1")
    assert resolve_base(repo) == repo.head_sha
    assert resolve_base(repo, "v1") == repo.head_sha
    for bad in ("nothing", "--all", "HEAD:README", ""):
        with pytest.raises(UsageError):
            resolve_base(repo, bad)


def test_files_and_trees_are_read_as_of_a_commit(kit, repo):
    (repo.root / "link").symlink_to("src/a.py")
    (repo.root / "out").symlink_to("../../etc/passwd")
    (repo.root / "line\nbreak").write_text("x")
    kit.git(repo.root, "add", "-A")
    kit.git(repo.root, "commit", "-qm", "Links")
    sha = resolve_base(open_repository(repo.root))
    (repo.root / "README").write_text("not committed")
    assert read_file_at(repo, sha, "README") == b"read me\n"
    assert read_file_at(repo, sha, "link") == b"a = 1\n"
    for absent in ("out", "none", "src", "README/x", "line\nbreak"):
        assert read_file_at(repo, sha, absent) is None
    with pytest.raises(GitError, match="8 bytes"):
        read_file_at(repo, sha, "README", limit=4)
    read = read_files_at(repo, sha, ["src/a.py", "none", "README"], limit=6)
    assert {path: (blob.data, blob.truncated) for path, blob in read.items()} == {
        "src/a.py": (b"a = 1\n", False),
        "README": (b"read m", True),
    }
    assert [entry.path for entry in list_tree(repo, sha)] == [
        "README",
        "line\nbreak",
        "link",
        "out",
        "src/a.py",
        "src/b.py",
    ]
    with pytest.raises(GitError, match="is not in"):
        read_file_at(repo, "1" * 40, "README")
