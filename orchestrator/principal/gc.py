"""What nobody needs any more: found first, shown, and removed only when it is asked for.

Orphans of this home; leaves that ``--keep`` left; refs, archives, evidence and logs beyond the retention; the school's
images without a name. A bead that a person still has to answer keeps all of its own, whatever its age.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.engine.base import Gone
from orchestrator.errors import GatewayError, GitError, SchoolError, UsageError
from orchestrator.git.landing import delete_ref, kept_commit, kept_ref
from orchestrator.git.repository import open_repository
from orchestrator.principal import removal
from orchestrator.principal.journal import log_path
from orchestrator.principal.lease import Lease, bead_lease_path
from orchestrator.principal.recovery import orphans, remove_leaf_folder
from orchestrator.principal.resume import is_open
from orchestrator.principal.school import open_school
from orchestrator.sandbox.image_build import LABEL_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.engine.base import Engine
    from orchestrator.principal.school import School

DAY = 86400.0
BUILD_SECONDS = 3600.0
"""Longest time that a build may take: its layers have no name before its end."""

KEY_PREFIX = "school-"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that may go. ``bead`` is whose it is, "" for nobody's; ``ref`` is what removing it needs."""

    kind: str
    name: str
    reason: str
    bead: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Collector:
    """Finds and removes in one home."""

    school: School

    def remove(self, item: Item) -> bool:
        """Remove one item, its bead's lease held; return whether it is gone. A bead that somebody drives keeps all."""
        home = self.school.home
        lease = Lease.take(bead_lease_path(home.leases, item.bead)) if item.bead else None
        if item.bead and lease is None:
            return False
        try:
            return self._remove(item)
        except (OSError, SchoolError):
            return False
        finally:
            if lease is not None:
                lease.release(forget=True)

    def _remove(self, item: Item) -> bool:
        home, engine = self.school.home, self.school.engine
        match item.kind:
            case "container":
                return isinstance(engine.remove(item.ref), Gone)
            case "folder":
                return remove_leaf_folder(home, Path(item.ref))
            case "grant":
                self.school.close_grant(item.ref)
            case "kept leaf":
                return self._remove_kept(item.bead)
            case "ref":
                return delete_ref(open_repository(Path(item.ref)), kept_ref(item.bead), item.name.split()[-1])
            case "image":
                engine.remove_image(item.ref)
            case "lease":
                pass  # its file goes with the lease
            case _:
                path = Path(item.ref)
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        return True

    def _remove_kept(self, bead: str) -> bool:
        row = self.school.ledger.bead(bead)
        if row is None:
            return False
        home = self.school.home
        reasons = removal.remove_containers(self.school.engine, home, bead) or removal.remove_folders(home, row)
        if not reasons:
            self.school.ledger.update_bead(bead, event="collected", cleanup="done")
        return not reasons


@contextlib.contextmanager
def open_collector(say: Callable[[str], None]) -> Iterator[Collector]:
    """Open the school for collecting.

    Raises:
        SandboxError: the engine or a part can't be used.
    """
    with open_school(say) as school:
        yield Collector(school)


def collect(collector: Collector, *, kept: bool = False) -> list[Item]:
    """Return what nobody needs any more; nothing is changed.

    Args:
        collector: Of which home.
        kept: Name leaves that ``--keep`` left whatever their age.

    Raises:
        SchoolError: engine, gate or ledger can't be asked.
    """
    school = collector.school
    found = [
        Item(orphan.what, orphan.name, "no open bead needs it", orphan.bead, orphan.ref)
        for orphan in orphans(school.home, school.engine, school.ledger)
    ]
    rows = {str(row["bead"]): row for row in school.ledger.beads(limit=1_000_000)}
    found += _grants(school, rows)
    found += _old(school, rows, kept=kept)
    found += _images(school.engine)
    return found


def _images(engine: Engine) -> Iterator[Item]:
    """Yield the school's images that no name leads to and no container uses; young ones may belong to a build."""
    used = {container.image for container in engine.list({})}
    for image in engine.images({LABEL_IMAGE: ""}):
        if not image.tags and image.id not in used and time.time() - image.created > BUILD_SECONDS:
            yield Item("image", image.id[:19], "no name leads to it", ref=image.id)


def _grants(school: School, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Item]:
    """Yield grants and keys of beads that have ended: at the gate, and at the gateway."""
    names = {str(grant["grant"]) for grant in school.gate.grants() if grant.get("kind") == "student"}
    prefix = f"{KEY_PREFIX}{school.home.id}-"
    with contextlib.suppress(GatewayError):  # a gateway that is not the school's own may not tell its keys
        names |= {key.name.removeprefix(prefix) for key in school.gateway.keys(prefix) if key.active}
    for name in sorted(names):
        row = rows.get(name)
        if bookbag.is_bead(name) and not name.startswith("teacher-") and (row is None or not is_open(row)):
            yield Item("grant", name, "no open bead needs it", name, name)


def _old(school: School, rows: Mapping[str, Mapping[str, Any]], *, kept: bool) -> Iterator[Item]:
    """Yield what is older than the retention."""
    home, days = school.home, school.settings.archive_days
    before = time.time() - days * DAY
    reason = f"older than {days} days"
    waiting = {bead for bead, row in rows.items() if is_open(row) or row["human"] == "awaiting"}
    for bead, row in rows.items():
        if row["cleanup"] == "kept" and (kept or row["updated"] < before):
            yield Item("kept leaf", bead, "spawned with --keep" if kept else reason, bead)
        if row["updated"] < before and bead not in waiting:
            yield from _old_ref(row, reason)
    for folder in (home.archive, home.evidence):
        for path in sorted(folder.iterdir()):
            bead = path.name.removesuffix(".json").partition("~")[0]
            if path.lstat().st_mtime < before and bead not in waiting:
                yield Item(folder.name, path.name, reason, bead if bookbag.is_bead(bead) else "", str(path))
    for path in sorted(log_path(home, "x").parent.glob("*")):
        if path.lstat().st_mtime < before and path.stem not in waiting:
            yield Item("log", path.name, reason, ref=str(path))


def _old_ref(row: Mapping[str, Any], reason: str) -> Iterator[Item]:
    with contextlib.suppress(GitError, UsageError):  # the repository is gone, and its refs with it
        sha = kept_commit(open_repository(Path(row["repo"])), row["bead"])
        if sha is not None:
            yield Item("ref", f"{kept_ref(row['bead'])} {sha}", reason, row["bead"], row["repo"])
