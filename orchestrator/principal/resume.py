"""Going on with beads whose principal died: by ``school resume``, by the janitor's workers, by the sweep (R-49).

A bead is adopted by taking its lease; a lease that can't be taken means that somebody drives the bead, in whatever PID
namespace. So two resumers never both act, and one that is killed is followed by another.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.bookbag.wait import Watcher
from orchestrator.errors import EngineError, GatewayError, GitError, SchoolError, UsageError
from orchestrator.principal import removal
from orchestrator.principal.cancel import Cancellation, request_path, requested
from orchestrator.principal.conductor import LEASE_PATIENCE, Conductor
from orchestrator.principal.journal import BeadJournal, Quiet
from orchestrator.principal.lease import Lease, bead_lease_path, held
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.work import Work, new_report, prepared_from_json
from orchestrator.sandbox.outcome import Outcome
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.home import Home
    from orchestrator.principal.journal import Listener
    from orchestrator.principal.report import Report
    from orchestrator.principal.school import School


CANCEL_SECONDS = 60.0
"""Longest wait for a driver that was asked to end its bead; its student is gone long before."""


@dataclass(slots=True)
class Resumed:
    """What became of one bead. ``left`` names what could not be removed."""

    bead: str
    outcome: str
    left: list[str] = field(default_factory=list)
    report: Report | None = None  # None: there was too little left of it for a report


class Resumer:
    """Adopts beads of one home."""

    def __init__(self, school: School, ledger: Ledger, cancellation: Cancellation | None = None) -> None:
        self._school = school
        self._ledger = ledger
        self._cancellation = cancellation or Cancellation()

    def resume(self, bead: str, listener: Listener) -> Resumed | None:
        """Take a bead to its end: adopt and wait, verify, hand over, judge, dispose; whichever is left to do.

        Returns:
            What became of it; None when somebody drives it, or nothing is left to do.

        Raises:
            LedgerError: the ledger can't be read or written.
        """
        with self._adopted(bead) as row:
            if row is None:
                return None
            if requested(self._school.home, bead):
                return self._end(row, Outcome.CANCELLED, "cancelled", listener)
            return self._go_on(row, listener)

    def end(self, bead: str, outcome: Outcome, reason: str, listener: Listener) -> Resumed | None:
        """End a bead now with this outcome, unless it has one; what its student did is kept. None as in ``resume``.

        Raises:
            LedgerError: the ledger can't be read or written.
        """
        with self._adopted(bead) as row:
            return None if row is None else self._end(row, outcome, reason, listener)

    @contextmanager
    def _adopted(self, bead: str) -> Iterator[Mapping[str, Any] | None]:
        """Hold a bead's lease for the block; None when it can't be had, or nothing is left to do."""
        home = self._school.home
        lease = Lease.take(bead_lease_path(home.leases, bead), patience=LEASE_PATIENCE)
        if lease is None:
            yield None
            return
        try:
            # read under the lease: its driver may have ended it just before
            row = self._ledger.bead(bead)
            if row is None or not is_open(row):
                yield None
                return
            self._ledger.event(bead, "adopted", was=row["outcome"])
            yield row
            request_path(home, bead).unlink(missing_ok=True)
        finally:
            lease.release(forget=True)

    def _go_on(self, row: Mapping[str, Any], listener: Listener) -> Resumed:
        try:
            work = self._work(row, listener)
        except (UsageError, GitError, KeyError, TypeError, ValueError) as error:
            return self._bury(row, Outcome.LOST, f"its principal died, and its repository can't be used: {error}")
        report = Conductor(self._school, self._ledger, self._cancellation).go_on(work)
        return Resumed(report.bead, report.outcome, [] if report.cleanup != "failed" else work.journal.notes, report)

    def _end(self, row: Mapping[str, Any], outcome: Outcome, reason: str, listener: Listener) -> Resumed:
        try:
            work = self._work(row, listener)
        except (UsageError, GitError, KeyError, TypeError, ValueError):
            return self._bury(row, outcome, reason)
        report = Conductor(self._school, self._ledger, self._cancellation).end(work, outcome, reason)
        return Resumed(report.bead, report.outcome, [] if report.cleanup != "failed" else work.journal.notes, report)

    def _work(self, row: Mapping[str, Any], listener: Listener) -> Work:
        data = {**row["data"], "repo": row["repo"], "base_sha": row["base_sha"], "bead": row["bead"]}
        prepared = prepared_from_json(data)
        journal = BeadJournal(self._school.home, self._ledger, prepared.bead, listener)
        work = Work(prepared, journal, new_report(prepared), float(row["created"]))
        try:
            work.restore(row)
        except BaseException:
            journal.close()
            raise
        return work

    def _bury(self, row: Mapping[str, Any], outcome: Outcome, reason: str) -> Resumed:
        """Remove what is left of a bead that can't be driven any more: its repository is gone, or its row is old."""
        home, bead = self._school.home, str(row["bead"])
        outcome = Outcome(row["outcome"]) if row["outcome"] else outcome
        head = row["head_sha"]
        reasons = removal.remove_containers(self._school.engine, home, bead)
        if not reasons:
            try:
                head = head or removal.salvage(home, row)
            except GitError as error:
                reasons.append(f"its work could not be kept: {error.message}")
            else:
                reasons += removal.remove_folders(home, row)
        try:
            self._school.close_grant(bead)
        except (GatewayError, EngineError) as error:
            reasons.append(f"its grant could not be closed: {error.message}")
        reasons += removal.archive_papers(home, bead, reviewed_later=outcome is Outcome.NOT_REVIEWED)
        data = {} if row["outcome"] else {"reason": reason}
        cleanup = "failed" if reasons else "done"
        columns = {"status": "ended", "outcome": outcome, "cleanup": cleanup, "head_sha": head}
        self._ledger.update_bead(bead, event="buried", data=data, **columns)
        return Resumed(bead, outcome, reasons)


def cancel(bead: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Have a bead ended by whoever drives it, or end it here when nobody does; return its row.

    Raises:
        UsageError: there is no such bead, or it has ended.
        SchoolError: its driver did not end it in time.
        SandboxError: nobody drives it, and the school can't be opened to do it here.
    """
    home = settings().home()
    with Ledger(home.ledger) as ledger:
        row = ledger.bead(bead)
        if row is None or not is_open(row):
            how = f"has ended already: {row['outcome']}" if row else "is not in the ledger"
            raise UsageError(f"Bead {bead} {how}.", next_step="See what runs: school ps")
        path = request_path(home, bead)
        path.touch(mode=0o600)
        try:
            return _wait_for_end(home, ledger, bead, say)
        finally:
            path.unlink(missing_ok=True)


def _wait_for_end(home: Home, ledger: Ledger, bead: str, say: Callable[[str], None]) -> dict[str, Any]:
    deadline = time.monotonic() + CANCEL_SECONDS
    lease = bead_lease_path(home.leases, bead)
    with Watcher(home.leases) as watcher:
        while (row := ledger.bead(bead)) is not None and is_open(row):
            if not held(lease):
                from orchestrator.principal.school import open_school  # noqa: PLC0415 - a driven bead does not need it

                with Cancellation().installed() as cancellation, open_school(say) as school:
                    ended = Resumer(school, ledger, cancellation).end(bead, Outcome.CANCELLED, "cancelled", Quiet())
                if ended is not None:
                    return ledger.bead(bead) or row
            if time.monotonic() > deadline:
                raise SchoolError(
                    f"Bead {bead} did not end in {CANCEL_SECONDS:g} s; who drives it: {lease.read_text().strip()}.",
                    next_step="Look at what that process does; once it is gone, say school cancel again.",
                )
            watcher.wait(0.5)
    if row is None:
        raise UsageError(f"Bead {bead} is not in the ledger any more.")
    return row


def is_open(row: Mapping[str, Any]) -> bool:
    """Return whether a bead's work or removal is not done."""
    return row["status"] == "running" or row["cleanup"] in {"pending", "failed"}


def main() -> int:
    """Go on with the bead named on the command line: a worker of the janitor."""
    from orchestrator.principal.school import open_school  # noqa: PLC0415 - costs what a waiting janitor must not pay

    def say(text: str) -> None:
        print(text, file=sys.stderr)  # noqa: T201 - the janitor's log

    bead = sys.argv[1]
    try:
        with Cancellation().installed() as cancellation, open_school(say) as school:
            done = Resumer(school, school.ledger, cancellation).resume(bead, Quiet())
    except SchoolError as error:
        say(f"{bead}: {error.message} {error.next_step}")
        return error.exit_code
    if done is not None:
        say(f"{bead}: {done.outcome}" + "".join(f"; {text}" for text in done.left))
    return 1 if done is not None and done.left else 0


if __name__ == "__main__":
    sys.exit(main())
