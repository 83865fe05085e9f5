"""What a dead principal left: found through ledger, engine and disk, and ended (R-49, R-54; DESIGN, "Removal").

Nothing is touched without proof that it is ours and that nobody drives it: an object must carry this home's id, and the
lease of its bead must be taken first. Work that was done is frozen and kept at ``refs/school/<bead>`` before its
worktree goes. What can't be removed now stays named in the ledger, and is tried again by the next sweep.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator import bookbag
from orchestrator.engine.base import LABEL_BEAD, LABEL_HOME, LABEL_KIND, Gone, Kind
from orchestrator.errors import BookbagError, EngineError, GatewayError, GitError
from orchestrator.git.dispose import dispose_workspace, dispose_worktree, remove
from orchestrator.git.freeze import freeze
from orchestrator.git.landing import keep
from orchestrator.git.workspace import Workspace
from orchestrator.principal.lease import Lease, bead_lease_path
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.engine.base import Engine
    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger

BEAD_KINDS = (Kind.LEAF, Kind.VERIFY)
PROBE_AGE = 120.0
"""Seconds after which a probe's container belongs to nobody any more."""


class Closer(Protocol):
    """Closes a bead's grant."""

    def close_grant(self, bead: str) -> dict[str, Any] | None:
        """Revoke its key and its socket; idempotent."""
        ...


@dataclass(slots=True)
class Swept:
    """What one sweep did, in bead ids and container names."""

    ended: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)  # still not removed, with the reason


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Ends abandoned beads of one home."""

    home: Home
    engine: Engine
    ledger: Ledger
    gateway: Closer

    def sweep(self) -> Swept:
        """End every bead of this home that nobody drives and that is not removed; then what no ledger row names.

        Raises:
            EngineError: the engine can't be asked at all.
            LedgerError: the ledger can't be read or written.
        """
        done = Swept()
        for row in self.ledger.beads(running=True):
            with _taken(self.home, row["bead"]) as lease:
                # read again under the lease: its driver may have ended it between our reading and our taking
                current = self.ledger.bead(row["bead"]) if lease else None
                if current is None or not _is_open(current):
                    continue
                reasons = self._end(current)
                done.ended.append(row["bead"])
                done.open += [f"{row['bead']}: {reason}" for reason in reasons]
        self._orphan_containers(done)
        self._orphan_folders(done)
        return done

    def _end(self, row: Mapping[str, Any]) -> list[str]:
        """End one bead whose lease is held here; return what could not be removed."""
        bead = str(row["bead"])
        self.ledger.event(bead, "recovery", was=row["outcome"])
        reasons = self._containers(bead)
        head = row["head_sha"]
        folder = self.home.leaves / bead
        if folder.exists() and not reasons:  # a tree that a container still writes is not frozen
            kept, problem = self._tree(row, folder)
            head = head or kept
            reasons += problem
        for kind in (Kind.VERIFY,):
            extra = self.home.leaves / f"{bead}.{kind}"
            if extra.exists() and not remove(extra):
                reasons.append(f"{extra} could not be deleted")
        try:
            self.gateway.close_grant(bead)
        except GatewayError as error:
            reasons.append(f"its grant could not be closed: {error.message}")
        self._papers(bead, row)
        self.ledger.update_bead(
            bead,
            event="swept",
            status="ended",
            outcome=row["outcome"] or Outcome.LOST,
            cleanup="failed" if reasons else "done",
            head_sha=head,
            data={} if row["outcome"] else {"reason": "its principal died"},
        )
        return reasons

    def _containers(self, bead: str) -> list[str]:
        return [
            f"container {container.name} could not be removed"
            for container in self.engine.list({LABEL_HOME: self.home.id, LABEL_BEAD: bead})
            if not isinstance(self.engine.remove(container.id), Gone)
        ]

    def _tree(self, row: Mapping[str, Any], folder: Path) -> tuple[str | None, list[str]]:
        """Keep what the student did, then remove its tree."""
        bead, head = str(row["bead"]), None
        try:
            workspace = Workspace.load(folder, lock_dir=self.home.leases)
        except GitError:
            # It was not finished when its principal died: nobody worked in it, so nothing is lost.
            common, name = row["data"].get("common_dir"), row["data"].get("leaf_name")
            gone = not common or dispose_worktree(Path(common), folder / str(name), lock_dir=self.home.leases)
        else:
            if row["head_sha"] is None:
                try:
                    frozen = freeze(workspace, f"Work of {bead}, whose principal died\n\nBead: {bead}\n")
                    if frozen.head_sha is not None:
                        keep(workspace, bead, frozen.head_sha)
                        head = frozen.head_sha
                except GitError as error:
                    return None, [f"its work could not be kept, so its tree stays in {folder}: {error.message}"]
            gone = dispose_workspace(workspace)
        gone = remove(folder) and gone
        return head, [] if gone else [f"its worktree in {folder} could not be removed"]

    def _papers(self, bead: str, row: Mapping[str, Any]) -> None:
        """Take the flag away, and archive the bookbag unless a later review needs it."""
        dirs = bookbag.Dirs(self.home.bookbags, self.home.signals, self.home.locks)
        bookbag.BookbagSignal(bead, dirs=dirs).clear()
        if row["outcome"] == Outcome.NOT_REVIEWED:
            return
        try:
            bookbag.archive_bookbag(bead, self.home.archive, dirs=dirs)
            bookbag.forget_lock(bead, dirs=dirs)
        except BookbagError as error:
            self.ledger.event(bead, "note", text=f"the bookbag could not be archived: {error.message}")

    def _orphan_containers(self, done: Swept) -> None:
        """Remove containers of beads that the ledger does not know, or knows as ended."""
        for kind in (*BEAD_KINDS, Kind.PROBE):
            for container in self.engine.list({LABEL_HOME: self.home.id, LABEL_KIND: kind}):
                bead = container.labels.get(LABEL_BEAD, "")
                if kind is Kind.PROBE:
                    if time.time() - container.created > PROBE_AGE:
                        self._remove(container.id, container.name, done)
                elif bead:
                    with _taken(self.home, bead) as lease:
                        if lease and not self._is_kept(bead):
                            self._remove(container.id, container.name, done)

    def _orphan_folders(self, done: Swept) -> None:
        """Remove folders of leaves that the ledger does not know, or knows as ended."""
        for folder in self.home.leaves.iterdir():
            bead = folder.name.removesuffix(f".{Kind.VERIFY}")
            if not bookbag.is_bead(bead):
                continue
            with _taken(self.home, bead) as lease:
                row = self.ledger.bead(bead) if lease else None
                if not lease or self._is_kept(bead) or (row is not None and _is_open(row)):
                    continue
                try:
                    gone = dispose_workspace(Workspace.load(folder, lock_dir=self.home.leases))
                except GitError:
                    gone = True  # no finished worktree is in there
                if remove(folder) and gone:
                    done.orphans.append(folder.name)
                else:
                    done.open.append(f"{folder} could not be deleted")

    def _remove(self, container: str, name: str, done: Swept) -> None:
        try:
            gone = isinstance(self.engine.remove(container), Gone)
        except EngineError:
            gone = False
        (done.orphans if gone else done.open).append(name)

    def _is_kept(self, bead: str) -> bool:
        row = self.ledger.bead(bead)
        return row is not None and row["cleanup"] == "kept"


def _is_open(row: Mapping[str, Any]) -> bool:
    return row["status"] == "running" or row["cleanup"] in {"pending", "failed"}


class _taken:  # noqa: N801 - reads as a verb in a with statement
    """Hold a bead's lease for a block, when nobody else does; the lock file goes with the block."""

    def __init__(self, home: Home, bead: str) -> None:
        self._path = bead_lease_path(home.leases, bead)
        self._lease: Lease | None = None

    def __enter__(self) -> Lease | None:
        self._lease = Lease.take(self._path)
        return self._lease

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._lease.release(forget=True)
