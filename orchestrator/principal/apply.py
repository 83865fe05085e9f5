"""``school apply``: merge exactly the commit that two judges passed and a person approved (R-44, R-46)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.git.merge import Merged, merge_commit
from orchestrator.git.repository import open_repository
from orchestrator.principal.lease import Lease
from orchestrator.principal.standing import why_not
from orchestrator.principal.word import APPROVED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger

PATIENCE = 30.0
"""Seconds of waiting for another apply of the home: two merges into one branch take turns."""


def check_rehearsal(row: Mapping[str, Any], *, rehearsal: bool) -> None:
    """Refuse work of a scripted model, unless that is what is wanted.

    Raises:
        UsageError: a call of the bead was answered by the rehearsal.
    """
    if not rehearsal and (row["data"].get("report") or {}).get("rehearsal", True):
        raise UsageError(
            f"Calls of {row['bead']} were answered by the rehearsal: nobody judged this work.",
            next_step="Run the task on a real model; or say --rehearsal to try the way out.",
        )


def apply_bead(home: Home, ledger: Ledger, bead: str, *, rehearsal: bool = False) -> Merged:
    """Merge a bead's commit into the branch that its repository has checked out, by the user's identity.

    Raises:
        UsageError: it is not approved, something moved, or the merge would not be clean; nothing was touched then.
        GitError: git failed; nothing was touched.
        LedgerError: the merge was made, and could not be noted.
    """
    row = ledger.bead(bead)
    if row is None:
        raise UsageError(f"Bead {bead} is not in the ledger.", next_step="List them: school ps --all")
    head = str(row["head_sha"] or "")
    if row["human"] != APPROVED:
        raise UsageError(
            f"{bead} is not approved: it is {row['human'] or row['outcome'] or row['status']}.",
            next_step=f"Look at it (school diff {bead}), then: school approve {bead} --sha {head[:12]} --apply",
        )
    check_rehearsal(row, rehearsal=rehearsal)
    if head == row["base_sha"]:
        raise UsageError(
            f"{bead} changed nothing: there is nothing to apply.", next_step=f"Read it: school show {bead}"
        )
    lease = Lease.take(home.leases / "apply.lock", patience=PATIENCE)
    if lease is None:
        raise UsageError("Another apply is under way.", next_step="Try again in a moment.")
    try:
        if reason := why_not(home, row):
            raise UsageError(f"{bead} can't be applied: {reason}.", next_step=f"See: school show {bead}")
        branch = (row["data"].get("report") or {}).get("branch")
        merged = merge_commit(open_repository(Path(row["repo"])), head, f"Merge branch '{branch}'\n\nBead: {bead}\n")
        if merged.how != "already":
            data = {"branch": merged.branch, "commit": merged.commit, "how": merged.how}
            ledger.update_bead(bead, event="applied", data={"applied": data})
        return merged
    finally:
        lease.release()
