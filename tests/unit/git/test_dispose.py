from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from orchestrator.git import dispose
from orchestrator.git.dispose import dispose_workspace, dispose_worktree
from orchestrator.git.removal import remove_tree


def entries(repo) -> list[str]:
    folder = repo.common_dir / "worktrees"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_everything_of_a_workspace_goes_and_doing_it_again_is_fine(school, repo, owner):
    """R-28, R-54."""
    workspace = school.workspace(repo, owner=owner)
    assert dispose_workspace(workspace)
    assert list(workspace.folder.iterdir()) == []
    assert entries(repo) == []
    assert dispose_workspace(workspace)


@pytest.mark.parametrize(
    "damage", ["pointer gone", "pointer a folder", "entry gone", "tree gone", "tree a file", "tree a link"]
)
def test_a_damaged_worktree_goes_and_others_stay(kit, school, repo, tmp_path, damage):
    """Others' entries stay even where git would prune them."""
    kit.git(repo.root, "worktree", "add", "-q", "--detach", str(tmp_path / "theirs"))
    subprocess.run(["rm", "-rf", str(tmp_path / "theirs")], check=True)
    workspace = school.workspace(repo)
    outside = tmp_path / "outside"
    kit.write(outside, {"f": "f"})
    if damage.startswith("pointer"):
        (workspace.tree / ".git").unlink()
        if damage.endswith("folder"):
            (workspace.tree / ".git").mkdir()
    elif damage == "entry gone":
        remove_tree(repo.common_dir / "worktrees" / workspace.name)
    else:
        remove_tree(workspace.tree)
        if damage == "tree a file":
            workspace.tree.write_text("x")
        elif damage == "tree a link":
            workspace.tree.symlink_to(outside)
    assert dispose_worktree(repo.common_dir, workspace.tree, lock_dir=school.locks)
    assert not os.path.lexists(workspace.tree)
    assert entries(repo) == ["theirs"]
    assert (outside / "f").exists()


def test_an_outside_runtimes_worktree_is_removed_by_git_or_not_at_all(kit, school, repo, tmp_path):
    """R-28, R-103."""
    for name in ("fine", "broken"):
        kit.git(repo.root, "worktree", "add", "-q", "--detach", str(tmp_path / name))
    assert dispose_worktree(repo.common_dir, tmp_path / "fine", lock_dir=school.locks, outside=True)
    (tmp_path / "broken/.git").unlink()
    assert not dispose_worktree(repo.common_dir, tmp_path / "broken", lock_dir=school.locks, outside=True)
    assert (tmp_path / "broken/README").exists()
    assert entries(repo) == ["broken"]


def test_git_is_tried_twice_before_the_disk(kit, school, repo, monkeypatch):
    """R-28: retried with backoff, each step verified by looking."""
    workspace = school.workspace(repo)
    calls: list[tuple[str, ...]] = []
    real = dispose.git

    def lazy(*args, **options):
        calls.append(args)
        if len(calls) < 2:
            return None  # says it worked, and did not
        return real(*args, **options)

    monkeypatch.setattr(dispose, "git", lazy)
    assert dispose_worktree(repo.common_dir, workspace.tree, lock_dir=school.locks)
    assert [args[:2] for args in calls] == [("worktree", "remove")] * 2


def test_a_repository_that_is_gone_does_not_keep_the_tree_and_nothing_raises(school, repo):
    workspace = school.workspace(repo)
    remove_tree(repo.root)
    assert dispose_workspace(workspace)
    assert not os.path.lexists(workspace.tree)


def test_what_can_not_be_deleted_is_said_and_not_raised(school, repo, monkeypatch):
    workspace = school.workspace(repo, registered=False)

    def refuse(path):
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(dispose, "remove_tree", refuse)
    assert dispose_workspace(workspace) is False


def test_a_hostile_tree_is_deleted(kit, school, repo, tmp_path, owner):
    workspace = school.workspace(repo, owner=owner)
    tree = workspace.tree
    outside = tmp_path / "outside"
    kit.write(outside, {"f": "f"})
    (tree / "link").symlink_to(outside)
    (tree / ".git").unlink()
    kit.write(tree, {"closed/a/b": "x", "closed/c": "x"})
    for number in range(5000):
        (tree / "closed" / f"n{number}").touch()
    (tree / "closed/a").chmod(0)
    (tree / "closed").chmod(0)
    here = os.open(tree, os.O_RDONLY)
    for _ in range(1500):  # beyond PATH_MAX, the recursion limit and the open files of a process
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        os.symlink("/", "link", dir_fd=here)
    os.close(here)
    assert dispose_workspace(workspace)
    assert (outside / "f").exists()


def test_closed_folders_are_deleted_without_root(kit, request):
    top = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", str(top)], check=True))
    tree = top / "tree"
    kit.write(tree, {"closed/deeper/x": "x", "read only/y": "y"})
    (tree / "closed/deeper").chmod(0o000)
    (tree / "closed").chmod(0o000)
    (tree / "read only").chmod(0o555)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "10003:10003", str(top)], check=True)
        os.seteuid(10003)
        request.addfinalizer(lambda: os.seteuid(0))
    remove_tree(tree)
    assert not tree.exists()


def test_a_home_behind_a_link_and_a_relative_entry_are_recognised(kit, repo, tmp_path, monkeypatch):
    """Newer git may write the entry's path relative to the entry."""
    from orchestrator.git.workspace import Workspace

    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    for number, relative in enumerate((False, True)):
        folder = tmp_path / "home" / f"bead-{number}"
        workspace = Workspace.create(repo, repo.head_sha, folder, name=f"study-{number}", lock_dir=tmp_path / "locks")
        entry = repo.common_dir / "worktrees" / workspace.name
        if relative:
            pointer = os.path.relpath(tmp_path / "real" / f"bead-{number}" / workspace.name / ".git", entry)
            (entry / "gitdir").write_text(pointer + "\n")
        (workspace.tree / ".git").unlink()  # so that git itself can't remove it
        assert dispose_worktree(repo.common_dir, workspace.tree, lock_dir=tmp_path / "locks")
        assert entries(repo) == []


def test_two_worktrees_of_one_name_are_told_apart(kit, school, repo, tmp_path):
    kit.git(repo.root, "worktree", "add", "-q", "--detach", str(tmp_path / "study-coder-00000001"))
    workspace = school.workspace(repo)
    assert workspace.name == "study-coder-00000001"
    assert workspace.entry_name() == "study-coder-000000011"
    assert dispose_workspace(workspace)
    assert entries(repo) == ["study-coder-00000001"]
    assert (tmp_path / "study-coder-00000001/README").exists()


def test_what_a_killed_create_left_goes(kit, school, repo, tmp_path):
    """R-49: the entry is there and half written, the folder is not; another broken entry is not ours."""
    for name in ("study-coder-ab12cd34", "somebody"):
        kit.write(repo.common_dir / "worktrees" / name, {"locked": "initializing"})
    assert dispose_worktree(repo.common_dir, tmp_path / "study-coder-ab12cd34", lock_dir=school.locks)
    assert entries(repo) == ["somebody"]
