"""Taking every trace of a bead away: by labels, folders and names, so that it needs nothing but the bead's row.

Whoever calls holds the bead's lease. Each function looks afterwards and returns what is still there, in words; none
raises for something that can't be removed now: it stays named in the ledger, and is tried again.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.engine.base import LABEL_BEAD, LABEL_HOME, Gone, Kind
from orchestrator.engine.retry import patiently
from orchestrator.errors import BookbagCorruptError, BookbagError, EngineError, GitError, UsageError
from orchestrator.faults import fault_point
from orchestrator.git.dispose import dispose_workspace, dispose_worktree, remove
from orchestrator.git.freeze import freeze
from orchestrator.git.landing import keep
from orchestrator.git.workspace import Workspace
from orchestrator.principal.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.engine.base import Engine
    from orchestrator.home import Home

ENGINE_BUDGET = 5.0
"""Seconds of patience with an engine that is away: a person waits; the janitor tries again later."""


LOCK_SECONDS = 10.0
"""Longest wait for a teacher that is writing a bookbag which is to be archived."""


def commit_message(bead: str, task: str) -> str:
    """Return the frozen commit's subject and body; the task is the user's own text."""
    first = " ".join(task.split())[:64] or bead
    return f"{first}\n\nBead: {bead}\n"


def dirs_of(home: Home) -> bookbag.Dirs:
    """Return the shared folders of a home."""
    return bookbag.Dirs(home.bookbags, home.signals, home.locks)


def remove_containers(engine: Engine, home: Home, bead: str) -> list[str]:
    """Remove every container of a bead: student and verification, in whatever state."""
    reasons = []
    try:
        for attempt in patiently(ENGINE_BUDGET):
            with attempt:
                found = engine.list({LABEL_HOME: home.id, LABEL_BEAD: bead})
        left = [container.name for container in found if not isinstance(engine.remove(container.id), Gone)]
        reasons = [f"the container {name} could not be removed" for name in left]
    except EngineError as error:
        reasons.append(f"its containers could not be removed: {error.message}")
    fault_point("dispose.containers")
    return reasons


def salvage(home: Home, row: Mapping[str, Any]) -> str | None:
    """Keep what a student left in its tree at ``refs/school/<bead>``; return the commit, None when nothing changed.

    Its containers must be gone. Repeating it gives the same commit: text and time are those of the bead.

    Raises:
        GitError: it could not be kept.
    """
    bead = str(row["bead"])
    try:
        workspace = Workspace.load(home.leaves / bead, lock_dir=home.leases)
    except (GitError, UsageError):
        return None  # never finished, so nobody worked in it; or its repository is gone, and a ref has no place
    message = commit_message(bead, str((row["data"].get("request") or {}).get("task") or ""))
    frozen = freeze(workspace, message, when=int(row["created"]))
    if frozen.head_sha is not None:
        keep(workspace, bead, frozen.head_sha)
    fault_point("dispose.salvaged")
    return frozen.head_sha


def remove_folders(home: Home, row: Mapping[str, Any]) -> list[str]:
    """Remove a bead's worktrees, their entries in the repository, and its folders."""
    reasons = []
    bead, data = str(row["bead"]), row["data"]
    for kind in (Kind.VERIFY, Kind.LEAF):
        folder = leaf_folder(home, bead, kind)
        gone = True
        with contextlib.suppress(GitError, UsageError):  # half made, half removed, or its repository is gone
            gone = dispose_workspace(Workspace.load(folder, lock_dir=home.leases))
        if kind is Kind.LEAF and data.get("common_dir") and data.get("leaf_name"):
            tree = folder / str(data["leaf_name"])
            gone = dispose_worktree(Path(data["common_dir"]), tree, lock_dir=home.leases) and gone
            fault_point("dispose.worktree")
        if not (remove(folder) and gone):
            reasons.append(f"its tree in {folder} could not be removed")
    remove_task_lock(home, bead)
    fault_point("dispose.folders")
    return reasons


def remove_task_lock(home: Home, bead: str) -> None:
    """Remove the lock file of a bead's task, unless somebody holds it: its principal may have died over it."""
    lease = Lease.take(home.leases / f"task-{bead}.lock")
    if lease is not None:
        lease.release(forget=True)


def leaf_folder(home: Home, bead: str, kind: Kind) -> Path:
    """Return the folder of a bead's leaf, or of its verification."""
    return home.leaves / (bead if kind is Kind.LEAF else f"{bead}.{kind}")


def archive_papers(home: Home, bead: str, *, reviewed_later: bool) -> list[str]:
    """Take the flag down; move the bookbag into the archive with the principal's own states (R-9, R-13).

    Args:
        home: Whose.
        bead: Which.
        reviewed_later: The bookbag stays: ``school review`` needs it where it is.
    """
    dirs = dirs_of(home)
    try:
        bookbag.BookbagSignal(bead, dirs=dirs).clear()
        bag = None if reviewed_later else bookbag.read_bookbag(bead, dirs=dirs)
        if bag is not None:
            for before, after in ((bookbag.REVIEWED, bookbag.SCORED), (bookbag.SCORED, bookbag.DISPOSED)):
                if bag is not None and bag.get("state") == before:
                    bag = bookbag.locked_update_bookbag(bead, {"state": after}, dirs=dirs, lock_timeout=30)
                    fault_point(f"archive.{after.lower()}")
    except BookbagCorruptError as error:
        reasons = [f"its bookbag is corrupt and was archived as it is: {error.message}"]
    except (BookbagError, OSError) as error:
        return [f"its bookbag could not be closed: {error}"]
    else:
        reasons = []
    if reviewed_later:
        return reasons
    lock = bookbag.bead_lock(bead, LOCK_SECONDS, dirs=dirs)
    if not lock.acquire():  # a teacher that is writing would write it back
        return [*reasons, "its bookbag's lock is held"]
    try:
        bookbag.archive_bookbag(bead, home.archive, dirs=dirs)
    except (BookbagError, OSError) as error:
        reasons.append(f"its bookbag could not be archived: {error}")
    finally:
        lock.release(unlink=True)
    fault_point("archive")
    return reasons


def remove_verification(home: Home, bead: str) -> bool:
    """Remove the folder of a verification that was cut off; its container must be gone."""
    folder = leaf_folder(home, bead, Kind.VERIFY)
    with contextlib.suppress(GitError, UsageError):  # half made
        dispose_workspace(Workspace.load(folder, lock_dir=home.leases))
    return remove(folder)
