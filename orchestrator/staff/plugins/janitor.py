"""Janitor of the records: leftovers of killed writers, flags that nobody needs, bookbags that nobody knows.

Leaves, grants, refs and what is older than the retention are the principal's own to remove (``school gc``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.staff.plugin import StaffResult, Trust

if TYPE_CHECKING:
    from orchestrator.staff.plugin import StaffContext
    from orchestrator.staff.sandbox import StaffSandbox

LEFTOVER_AFTER = 3600.0  # seconds: a writer takes milliseconds
BEADS = 10_000


class Janitor:
    """See the module."""

    name = "janitor"
    trust = Trust.CORE

    def health_check(self) -> str:
        """Nothing is needed."""
        return ""

    def run(self, sandbox: StaffSandbox, ctx: StaffContext) -> StaffResult:  # noqa: ARG002 - the protocol's
        """Remove leftovers and stale flags; report bookbags without a bead."""
        for area in (
            "bookbags",
            "signals",
            "locks",
            "sessions/cto",
            "sessions/coo",
            "consolidated/cto",
            "consolidated/coo",
        ):
            for name, age in sandbox.names(area):
                if name.startswith(".") and name.endswith(".tmp") and age > LEFTOVER_AFTER:
                    sandbox.remove(area, name)
        rows = {row["bead"]: row for row in sandbox.beads(BEADS)}
        bags = {name.removesuffix(".json") for name, _ in sandbox.names("bookbags") if not name.startswith(".")}
        for name, age in sandbox.names("signals"):
            bead = name.removesuffix(".ready")
            row = rows.get(bead)
            # a flag without a bookbag, of a bead that has ended: R-16 makes it harmless, here it goes
            if (
                name.endswith(".ready")
                and age > LEFTOVER_AFTER
                and bead not in bags
                and row
                and row["status"] == "ended"
            ):
                sandbox.remove("signals", name)
        return StaffResult(
            tuple(f"the bookbag {bead} belongs to no bead of the ledger" for bead in sorted(bags - rows.keys()))
        )
