"""Bring a frozen commit into the user's repository: objects, the ref that keeps it, the branch once it is accepted.

Nothing else of the repository is written: no working tree, index, configuration, current branch. Objects arrive as one
pack file beside the others; refs are made by git with compare-and-swap.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import GitError, UsageError
from orchestrator.faults import fault_point
from orchestrator.git.freeze import FileChange, file_changes
from orchestrator.git.ownership import give_back

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.git.repository import Repository
    from orchestrator.git.workspace import Workspace

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """The branch an accepted bead gets. ``reason`` says why it is not ``school/<bead>``, if it is not."""

    name: str
    reason: str = ""


def kept_ref(bead: str) -> str:
    """Return the ref that keeps a bead's result."""
    return f"refs/school/{bead}"


def check_branch_free(repo: Repository, bead: str) -> BranchPlan:
    """Decide, before anything is started, which branch an accepted bead will get.

    ``school/<bead>``; where a branch ``school`` exists git can't have it, and it is ``school-<bead>``.

    Raises:
        UsageError: a ref of this bead exists already, or ``refs/school`` is in use.
    """
    names = ("refs/heads/school", f"refs/heads/school-{bead}", "refs/school")
    taken = set(repo.run("for-each-ref", "--format=%(refname)", *names).stdout.decode(errors="replace").splitlines())
    blocked = "refs/heads/school" in taken
    branch = f"school-{bead}" if blocked else f"school/{bead}"
    for ref in ("refs/school", kept_ref(bead), f"refs/heads/{branch}"):
        clash = [name for name in taken if name == ref or (ref != "refs/school" and name.startswith(ref + "/"))]
        if clash:
            raise UsageError(
                f"The ref {clash[0]} is in the way of the bead {bead} in {repo.root}.",
                next_step=f'Look at it (git -C "{repo.root}" log {clash[0]}), then rename or delete it.',
            )
    return BranchPlan(branch, "a branch named school exists, so git can't have school/…" if blocked else "")


def keep(workspace: Workspace, bead: str, head_sha: str) -> None:
    """Move a frozen commit's objects into the repository and point ``refs/school/<bead>`` at it.

    Doing it again with the same commit changes nothing.

    Raises:
        GitError: the objects could not be written, or the ref points at something else.
    """
    repo = workspace.repo
    packs = repo.common_dir / "objects" / "pack"
    try:
        # the index last: git takes a pack for there once its index is
        for suffix in (".pack", ".idx"):
            for source in sorted((workspace.trusted / "objects" / "pack").glob(f"pack-*{suffix}")):
                _copy_into(packs / source.name, source)
                fault_point(f"ref{suffix}")
    except OSError as error:
        raise GitError(
            f"The result could not be written to {packs}: {error.strerror}.",
            next_step="Give this user the right to write there, or make room; then run the bead again.",
        ) from error
    give_back(repo.common_dir, packs)
    _create_ref(repo, kept_ref(bead), head_sha)


def kept_commit(repo: Repository, bead: str) -> str | None:
    """Return the commit that ``refs/school/<bead>`` keeps, or None."""
    return _ref(repo, kept_ref(bead))


def create_branch(repo: Repository, branch: str, head_sha: str) -> None:
    """Make the branch of an accepted bead. It must not exist, unless it is at ``head_sha`` already.

    Raises:
        GitError: it exists with another commit, or git failed.
    """
    _create_ref(repo, f"refs/heads/{branch}", head_sha)


def delete_ref(repo: Repository, ref: str, expected: str) -> bool:
    """Delete a ref of the school if it still is at ``expected``; return whether it is gone afterwards.

    Raises:
        GitError: ``ref`` is not one of the school's.
    """
    if not ref.startswith(("refs/school/", "refs/heads/school/", "refs/heads/school-")):
        raise GitError(f"{ref} is not a ref of the school; it stays.")
    repo.run("update-ref", "-d", ref, expected, check=False)
    return _ref(repo, ref) is None


def diff(repo: Repository, base_sha: str, head_sha: str, paths: Sequence[str] = ()) -> bytes:
    """Return the patch between two commits: no external diff, no textconv, no attributes of either commit.

    Raises:
        GitError: git failed.
    """
    return repo.run(
        *("diff-tree", "-p", "-r", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "-M"),
        *("--ignore-submodules=none", "--src-prefix=a/", "--dst-prefix=b/", base_sha, head_sha, "--", *paths),
    ).stdout


def diffstat(repo: Repository, base_sha: str, head_sha: str) -> tuple[FileChange, ...]:
    """Return what differs between two commits, sorted by path.

    Raises:
        GitError: git failed.
    """
    return file_changes(repo.common_dir, base_sha, head_sha)


def _create_ref(repo: Repository, ref: str, sha: str) -> None:
    answer = repo.run("update-ref", "-m", "school: freeze", ref, sha, "0" * len(sha), check=False)
    if answer.code != 0 and _ref(repo, ref) != sha:
        raise GitError(
            f"{ref} could not be made in {repo.root}: {answer.stderr}",
            stderr=answer.stderr,
            next_step=f'Look at what is there: git -C "{repo.root}" log {ref}',
        )
    give_back(repo.common_dir, repo.common_dir / ref, repo.common_dir / "logs" / ref)


def _ref(repo: Repository, ref: str) -> str | None:
    answer = repo.run("rev-parse", "--verify", "--quiet", "--end-of-options", ref, check=False)
    lines = answer.stdout.decode().split()
    return lines[-1] if answer.code == 0 and lines else None


def _copy_into(target: Path, source: Path) -> None:
    """Copy a file so that it is there whole and on disk, or not at all; owned as its folder is, read-only."""
    for leftover in target.parent.glob(f"tmp_{source.name}_*"):  # of a principal that was killed here
        leftover.unlink(missing_ok=True)
    if target.exists():
        return
    status = target.parent.stat()
    temporary = target.parent / f"tmp_{source.name}_{secrets.token_hex(4)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        with os.fdopen(descriptor, "wb") as writer, source.open("rb") as reader:
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)
            writer.flush()
            os.fchmod(writer.fileno(), 0o444)
            if os.geteuid() == 0:
                os.fchown(writer.fileno(), status.st_uid, status.st_gid)
            os.fsync(writer.fileno())
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
