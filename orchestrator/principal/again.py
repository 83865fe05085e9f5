"""``school review BEAD``: judge once more what was parked as not reviewed (R-37).

Its ref, evidence and bookbag are all that is needed. The bead's row is opened again first, so that a principal that
dies here is followed by the next one like any other.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Literal

from orchestrator import bookbag
from orchestrator.errors import UsageError
from orchestrator.faults import fault_point
from orchestrator.principal import removal
from orchestrator.principal.conductor import LEASE_PATIENCE
from orchestrator.principal.janitor import start_janitor
from orchestrator.principal.lease import Lease, bead_lease_path
from orchestrator.principal.resume import Resumer
from orchestrator.principal.work import Stage
from orchestrator.review.attempts import unpark
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from typing import Any

    from orchestrator.principal.cancel import Cancellation
    from orchestrator.principal.journal import Listener
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.report import Report
    from orchestrator.principal.school import School


def review_again(
    school: School,
    ledger: Ledger,
    bead: str,
    listener: Listener,
    cancellation: Cancellation | None = None,
    *,
    mode: Literal["async", "sync"] = "async",
) -> Report:
    """Give a parked bead's teachers their attempts back, raise the flag, and take it to its end.

    Args:
        school: Where.
        ledger: Its ledger.
        bead: Which.
        listener: Who watches.
        cancellation: How it can be ended.
        mode: By the teachers, or in this process; whatever its first review was.

    Raises:
        UsageError: it is not one that was left without a review, or its papers are gone.
        LedgerError: the ledger can't be read or written.
    """
    home = school.home
    lease = Lease.take(bead_lease_path(home.leases, bead), patience=LEASE_PATIENCE)
    if lease is None:
        raise UsageError(f"Somebody drives {bead}.", next_step=f"Follow it: school logs -f {bead}")
    try:
        row = _checked(school, ledger, bead)
        for teacher in bookbag.TEACHERS:
            unpark(bead, teacher, dirs=removal.dirs_of(home))
        ledger.update_bead(
            bead, event="reviewed_again", status="running", outcome=None, cleanup="pending", data=_reopened(row, mode)
        )
        fault_point("reopened")
        if school.settings.janitor:
            start_janitor(home)
    finally:
        lease.release(forget=True)
    done = Resumer(school, ledger, cancellation).resume(bead, listener)
    if done is None or done.report is None:
        raise UsageError(
            f"{bead} was taken over by somebody else.", next_step=f"Follow it there: school logs -f {bead}"
        )
    return done.report


def _checked(school: School, ledger: Ledger, bead: str) -> dict[str, Any]:
    row = ledger.bead(bead)
    if row is None:
        raise UsageError(f"Bead {bead} is not in the ledger.", next_step="List them: school ps --all")
    progress = row["data"].get("progress") or {}
    if row["status"] != "ended" or row["outcome"] != Outcome.NOT_REVIEWED or "stage" not in progress:
        raise UsageError(
            f"{bead} was not left without a review: it {'ended as ' + row['outcome'] if row['outcome'] else 'runs'}.",
            next_step=f"See: school show {bead}",
        )
    if Stage[progress["stage"]] < Stage.HANDED_OVER:
        return row  # nothing was handed to the judges yet: that is done first
    home = school.home
    if bookbag.read_bookbag(bead, dirs=removal.dirs_of(home)) is None:
        raise UsageError(f"The bookbag of {bead} is gone from {home.bookbags}.", next_step="Run the task again.")
    if not (home.evidence / bead / "evidence.json").exists():
        raise UsageError(f"The evidence of {bead} is gone from {home.evidence}.", next_step="Run the task again.")
    return row


def _reopened(row: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return the row's data without the end that it had."""
    progress = copy.deepcopy(row["data"]["progress"])
    progress["report"] |= {"outcome": "", "reason": "", "accepted": False, "cleanup": "pending"}
    request = {**row["data"]["request"], "review": mode}
    return {"progress": progress, "request": request, "report": None, "reason": "", "settled": None}
