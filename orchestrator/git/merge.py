"""Merge one commit into the branch that a person has checked out: all of it, or nothing at all.

The merge is made in the object store (``merge-tree``, ``commit-tree``) before the working tree is touched; what then
moves it is a fast-forward, which git refuses as a whole when an uncommitted change is in the way. Hooks are off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import GitError, UsageError
from orchestrator.git.run import Completed, git

if TYPE_CHECKING:
    from orchestrator.git.repository import Repository

IDENTITY = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
"""What of the caller's environment says who merges."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Where a commit went: ``how`` is ``already``, ``fast-forward`` or ``merge``, ``commit`` the branch's new tip."""

    branch: str
    commit: str
    how: str


def merge_commit(repo: Repository, sha: str, message: str) -> Merged:
    """Bring ``sha`` into the current branch of ``repo``'s working tree.

    Raises:
        UsageError: it can't be done without a person's hand; nothing was touched.
        GitError: git failed at something that it should be able to do; nothing was touched.
    """
    branch = _branch(repo)
    head = _run(repo, "rev-parse", "HEAD").stdout.decode().strip()
    if _run(repo, "merge-base", "--is-ancestor", sha, head, check=False).code == 0:
        return Merged(branch, head, "already")
    forward = _run(repo, "merge-base", "--is-ancestor", head, sha, check=False).code == 0
    target = sha if forward else _merged(repo, head, sha, message)
    answer = _run(repo, "merge", "--ff-only", "--no-autostash", "--no-edit", "--quiet", target, check=False)
    if answer.code != 0:
        reason = " ".join(answer.stderr.split())[:600]
        raise UsageError(
            f"{branch} can't take {sha[:12]}; nothing was touched: {reason or 'git gave no reason'}",
            next_step=f'Commit, stash or move away what is in the way (git -C "{repo.root}" status), then apply again.',
        )
    return Merged(branch, target, "fast-forward" if forward else "merge")


def _branch(repo: Repository) -> str:
    if repo.foreign:
        raise UsageError(
            f"{repo.root} belongs to another user; a merge would leave files that its owner can't write.",
            next_step="Apply it as its owner.",
        )
    for name, what in (
        ("MERGE_HEAD", "a merge"), ("rebase-merge", "a rebase"), ("rebase-apply", "a rebase"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"), ("REVERT_HEAD", "a revert"),
    ):  # fmt: skip
        if (repo.git_dir / name).exists():
            raise UsageError(
                f"{repo.root} is in the middle of {what}.", next_step=f'End it first: git -C "{repo.root}" status'
            )
    if repo.head_branch is None:
        raise UsageError(
            f"{repo.root} is on no branch.", next_step=f'Check one out first: git -C "{repo.root}" switch BRANCH'
        )
    return repo.head_branch


def _merged(repo: Repository, head: str, sha: str, message: str) -> str:
    """Make the merge commit, which nothing points at yet."""
    tree = _run(repo, "merge-tree", "--write-tree", "--name-only", "--no-messages", head, sha, check=False)
    lines = tree.stdout.decode("utf-8", "replace").split("\n")
    if tree.code == 1:
        names = ", ".join(sorted(set(filter(None, lines[1:])))[:8])
        raise UsageError(
            f"{sha[:12]} conflicts with {repo.head_branch} in: {names}. Nothing was touched.",
            next_step=f'Merge it by hand: git -C "{repo.root}" merge {sha[:12]}',
        )
    if tree.code != 0:
        raise GitError(f"git merge-tree failed: {tree.stderr}", stderr=tree.stderr)
    who = _run(repo, "var", "GIT_COMMITTER_IDENT", check=False)
    if who.code != 0:
        raise UsageError(
            f"git does not know who merges in {repo.root}.",
            next_step="Tell it: git config --global user.name NAME && git config --global user.email ADDRESS",
        )
    signing = _run(repo, "config", "--type=bool", "--get", "commit.gpgsign", check=False).stdout.strip() == b"true"
    sign = ("-S",) if signing else ()
    return _run(repo, "commit-tree", *sign, "-p", head, "-p", sha, "-m", message, lines[0]).stdout.decode().strip()


def _run(repo: Repository, *args: str, check: bool = True) -> Completed:
    """Run git as the person would, in the working tree, with their configuration."""
    who = {name: os.environ[name] for name in IDENTITY if name in os.environ}
    return git(*args, cwd=repo.root, env=who, check=check)
