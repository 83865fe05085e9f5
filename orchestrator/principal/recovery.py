"""The sweep: what dead principals left is ended, or left to the janitor; what no row of the ledger names is removed.

Runs at the start of every command that makes something, and is cheap when nothing is open. Nothing is touched without
proof that it is ours and that nobody drives it: an object must carry this home's id, exactly, and the lease of its bead
must be taken first (R-49, R-54; DESIGN, "Removal"). What can't be removed now stays named, and is tried again.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator import bookbag
from orchestrator.engine.base import LABEL_BEAD, LABEL_DEADLINE, LABEL_HOME, LABEL_KIND, Gone, Kind
from orchestrator.errors import EngineError, GatewayError, GitError, UsageError
from orchestrator.git.dispose import dispose_workspace, remove
from orchestrator.git.workspace import Workspace
from orchestrator.principal.janitor import start_janitor
from orchestrator.principal.journal import Quiet
from orchestrator.principal.lease import Lease, bead_lease_path, held
from orchestrator.principal.resume import Resumer, is_open
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.engine.base import Container, Engine
    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.school import School

BEAD_KINDS = (Kind.LEAF, Kind.VERIFY)
PROBE_AGE = 120.0
"""Seconds after which a probe's container or folder belongs to nobody any more."""


@dataclass(slots=True)
class Swept:
    """What one sweep did, in bead ids and names of objects."""

    ended: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)  # still not removed, with the reason


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of this home that no open bead needs."""

    what: str  # "container", "folder", "grant", "lease", "probe folder"
    name: str
    bead: str
    ref: str  # a container's id, a path, a grant's name


class Sweeper:
    """Ends abandoned beads of one home, and removes orphans."""

    def __init__(self, school: School, ledger: Ledger) -> None:
        self._school = school
        self._ledger = ledger

    def sweep(self, *, all_beads: bool | None = None) -> Swept:
        """Deal with every bead of this home that nobody drives and that is not removed, and with orphans.

        Args:
            all_beads: End abandoned beads here and now. Off, the janitor adopts and finishes them instead, and is
                started for it. Default: on when there is no janitor (SCHOOL_JANITOR=false).

        Raises:
            EngineError: the engine can't be asked at all.
            LedgerError: the ledger can't be read or written.
        """
        home, done = self._school.home, Swept()
        lease = Lease.take(home.leases / "sweep.lock")
        if lease is None:
            return done  # another sweep is under way
        try:
            here = not self._school.settings.janitor if all_beads is None else all_beads
            self._rows(done, here=here)
            for orphan in orphans(home, self._school.engine, self._ledger):
                self._remove(orphan, done)
        finally:
            lease.release()
        return done

    def _rows(self, done: Swept, *, here: bool) -> None:
        home = self._school.home
        resumer = Resumer(self._school, self._ledger)
        for row in self._ledger.beads(running=True):
            bead = str(row["bead"])
            if held(bead_lease_path(home.leases, bead)):
                continue
            if not here:
                start_janitor(home)
                return
            ended = resumer.end(bead, Outcome.LOST, "its principal died", Quiet())
            if ended is not None:
                done.ended.append(bead)
                done.open += [f"{bead}: {reason}" for reason in ended.left]

    def _remove(self, orphan: Orphan, done: Swept) -> None:
        """Remove one orphan, its bead's lease held: what became a driven bead's meanwhile stays."""
        home = self._school.home
        lease = Lease.take(bead_lease_path(home.leases, orphan.bead)) if orphan.bead else None
        if orphan.bead:
            row = self._ledger.bead(orphan.bead) if lease else None
            if lease is None or (row is not None and (is_open(row) or row["cleanup"] == "kept")):
                if lease is not None:
                    lease.release(forget=True)
                return
        try:
            gone = self._gone(orphan)
        except (EngineError, GatewayError, OSError):
            gone = False
        finally:
            if lease is not None:
                lease.release(forget=True)
        (done.orphans if gone else done.open).append(f"{orphan.what} {orphan.name}")

    def _gone(self, orphan: Orphan) -> bool:
        home = self._school.home
        match orphan.what:
            case "container":
                return isinstance(self._school.engine.remove(orphan.ref), Gone)
            case "folder":
                return remove_leaf_folder(home, home.leaves / orphan.name)
            case "probe folder":
                shutil.rmtree(home.school / orphan.name)
                return True
            case "grant":
                self._school.close_grant(orphan.ref)
                return True
            case _:
                return True  # a lease's file: it went with the lease


def orphans(home: Home, engine: Engine, ledger: Ledger) -> list[Orphan]:
    """Return what carries this home's id and belongs to no bead that is open or kept; cheap when there is nothing.

    Grants are not looked for here: that takes the gate (``gc`` does).

    Raises:
        EngineError: the engine can't be asked.
    """
    return [*_orphan_containers(home, engine, ledger), *_orphan_files(home, ledger)]


def _orphan_containers(home: Home, engine: Engine, ledger: Ledger) -> Iterator[Orphan]:
    for kind in BEAD_KINDS:
        for container in engine.list({LABEL_HOME: home.id, LABEL_KIND: kind}):
            bead = container.labels.get(LABEL_BEAD, "")
            if bookbag.is_bead(bead) and not _needed(ledger, bead):
                yield Orphan("container", container.name, bead, container.id)
    for container in engine.list({LABEL_HOME: home.id, LABEL_KIND: Kind.PROBE}):
        if time.time() - container.created > PROBE_AGE:
            yield Orphan("container", container.name, "", container.id)


def _orphan_files(home: Home, ledger: Ledger) -> Iterator[Orphan]:
    for folder in sorted(home.leaves.iterdir()):
        bead = folder.name.removesuffix(f".{Kind.VERIFY}")
        if bookbag.is_bead(bead) and not _needed(ledger, bead):
            yield Orphan("folder", folder.name, bead, str(folder))
    for folder in home.school.glob("p-????????"):
        if time.time() - folder.stat().st_mtime > PROBE_AGE:
            yield Orphan("probe folder", folder.name, "", str(folder))
    for path in home.leases.glob("bead-*.lock"):
        bead = path.name.removeprefix("bead-").removesuffix(".lock")
        if bookbag.is_bead(bead) and not _needed(ledger, bead) and not held(path):
            yield Orphan("lease", path.name, bead, str(path))


def remove_leaf_folder(home: Home, folder: Path) -> bool:
    """Remove a leaf's folder with its worktree; return whether both are gone."""
    try:
        gone = dispose_workspace(Workspace.load(folder, lock_dir=home.leases))
    except (GitError, UsageError):
        gone = True  # no finished worktree is in there
    return remove(folder) and gone


def strangers(home: Home, engine: Engine) -> list[Container]:
    """Return students, verifications and probes that are not provably this home's and whose time is over.

    They may be another home's, or another host's on a shared engine: they are shown, and never touched.

    Raises:
        EngineError: the engine can't be asked.
    """
    found = []
    for kind in (*BEAD_KINDS, Kind.PROBE):
        for container in engine.list({LABEL_KIND: kind}):
            if container.labels.get(LABEL_HOME) == home.id:
                if kind is Kind.PROBE or bookbag.is_bead(container.labels.get(LABEL_BEAD, "")):
                    continue
            elif not _overdue(container):
                continue
            found.append(container)
    return found


def _overdue(container: Container) -> bool:
    try:
        deadline = float(container.labels.get(LABEL_DEADLINE, ""))
    except ValueError:
        deadline = container.created + PROBE_AGE
    return time.time() > deadline + PROBE_AGE


def _needed(ledger: Ledger, bead: str) -> bool:
    row = ledger.bead(bead)
    return row is not None and (is_open(row) or row["cleanup"] == "kept")
