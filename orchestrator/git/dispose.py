"""Remove a worktree, and look whether it is gone (R-28). Nothing here raises."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt, wait_exponential

from orchestrator.errors import GitError
from orchestrator.git.locks import repository_lock
from orchestrator.git.removal import remove_tree
from orchestrator.git.run import git

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.git.workspace import Workspace

_log = logging.getLogger(__name__)

ATTEMPTS = 2


def dispose_workspace(workspace: Workspace) -> bool:
    """Remove the worktree, its entry in the repository, and the git dirs beside it.

    Returns:
        Whether all of it was looked for afterwards and is gone. The bead's folder itself stays.
    """
    if workspace.registered:
        gone = dispose_worktree(workspace.repo.common_dir, workspace.tree, lock_dir=workspace.lock_dir)
    else:
        gone = remove(workspace.tree)
    beside = [remove(path) for path in (workspace.git_dir, workspace.trusted, workspace.pointer)]
    return gone and all(beside)


def dispose_worktree(common_dir: Path, tree: Path, *, lock_dir: Path, outside: bool = False) -> bool:
    """Remove one worktree through git, with retries; then from disk, if the principal made it (R-28).

    Only this worktree's entry is ever removed from the repository: ``git worktree prune`` would take others' along.

    Args:
        common_dir: The repository's shared git dir.
        tree: The worktree's folder.
        lock_dir: Where the repository's lock file is kept.
        outside: It was made by an outside runtime (R-103): what git can't remove stays, and the answer is False
            after two failures.

    Returns:
        Whether folder and entry were looked for afterwards and are gone. Never raises.
    """
    try:
        entry = _entry_of(common_dir, tree)
        attempts = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=0.1, max=2),
            retry=retry_if_result(lambda gone: not gone),
        )
        with contextlib.suppress(RetryError):
            return attempts(_through_git, common_dir, tree, entry, lock_dir)
        if outside:
            _log.warning("git could not remove the worktree %s, and it is not ours to delete", tree)
            return False
        return _from_disk(common_dir, tree, entry, lock_dir)
    except (OSError, GitError) as error:
        _log.warning("the worktree %s could not be removed: %s", tree, error)
        return False


def remove(path: Path) -> bool:
    """Delete a tree of ours; return whether it is gone. Never raises."""
    try:
        remove_tree(path)
    except OSError as error:
        _log.warning("%s could not be deleted: %s", path, error)
    return not os.path.lexists(path)


def _through_git(common_dir: Path, tree: Path, entry: Path | None, lock_dir: Path) -> bool:
    if _gone(tree, entry):
        return True
    if entry is None:  # git does not know it: nothing that git could remove
        return False
    try:
        with repository_lock(lock_dir, common_dir):
            # two forces: a locked worktree is unlocked and removed in one step
            git("worktree", "remove", "--force", "--force", str(tree), git_dir=common_dir, cwd=common_dir, timeout=600)
    except (GitError, OSError) as error:
        _log.info("git did not remove the worktree %s: %s", tree, error)
    return _gone(tree, entry)


def _from_disk(common_dir: Path, tree: Path, entry: Path | None, lock_dir: Path) -> bool:
    remove(tree)
    if entry is not None and os.path.lexists(entry):
        with repository_lock(lock_dir, common_dir):
            remove(entry)
            with contextlib.suppress(OSError):  # git removes the folder with its last entry as well
                (common_dir / "worktrees").rmdir()
    return _gone(tree, entry)


def _gone(tree: Path, entry: Path | None) -> bool:
    return not os.path.lexists(tree) and (entry is None or not os.path.lexists(entry))


def _entry_of(common_dir: Path, tree: Path) -> Path | None:
    """Return the repository's entry for this worktree: the one whose ``gitdir`` names it."""
    wanted = _real_parent(tree / ".git")
    try:
        entries = sorted((common_dir / "worktrees").iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return None
    for entry in entries:
        try:
            named = os.fsdecode((entry / "gitdir").read_bytes()).strip()
        except OSError:
            named = ""
        if not named and entry.name == tree.name:  # git was killed while it made the entry; the name is random
            return entry
        if named and _real_parent(entry / named) == wanted:  # relative to the entry, or absolute
            return entry
    return None


def _real_parent(pointer: Path) -> Path:
    """Return the path of a worktree's ``.git`` with links resolved above the worktree, which may itself be one now."""
    return pointer.parent.parent.resolve() / pointer.parent.name
