"""Score auditor: whether each profile's score is what its changes add up to (R-41), and proposals where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.staff.plugin import StaffResult, Trust
from orchestrator.staff.records import START_SCORE
from orchestrator.staff.sandbox import MAX_DELTA

if TYPE_CHECKING:
    from orchestrator.staff.plugin import StaffContext
    from orchestrator.staff.sandbox import StaffSandbox

CHANGES = 100_000
TOLERANCE = 1e-6
LARGEST_STEP = 30.0  # 0.3 of at most 100 points
STAFF = "staff "  # how the cause of a correction begins


class ScoreAuditor:
    """See the module."""

    name = "score_auditor"
    trust = Trust.CORE

    def health_check(self) -> str:
        """Nothing is needed."""
        return ""

    def run(self, sandbox: StaffSandbox, ctx: StaffContext) -> StaffResult:  # noqa: ARG002 - the protocol's
        """Follow each profile's changes from the first to its score."""
        findings: list[str] = []
        last: dict[str, float] = {}
        beads: set[tuple[str, str]] = set()
        for change in sandbox.score_changes(CHANGES):
            findings += _check(change, last.get(change["profile"], START_SCORE))
            if change["bead"] is not None:
                if (change["profile"], change["bead"]) in beads:
                    findings.append(f"{change['profile']}: {change['bead']} was scored twice")
                beads.add((change["profile"], change["bead"]))
            last[change["profile"]] = change["new"]
        for row in sandbox.current_scores():
            expected = last.get(row["profile"], START_SCORE)
            off = expected - row["score"]
            if abs(off) > TOLERANCE:
                findings.append(f"{row['profile']} stands at {row['score']:g}; its changes lead to {expected:g}")
                delta = max(-MAX_DELTA, min(MAX_DELTA, off))
                sandbox.change_score(row["profile"], delta, f"its changes lead to {expected:g}")
        return StaffResult(tuple(findings))


def _check(change: dict[str, Any], before: float) -> list[str]:
    profile, old, new = change["profile"], change["old"], change["new"]
    where = f"{profile}, change {change['id']} ({change['bead'] or change['cause']})"
    if change["cause"].startswith(STAFF):
        return []  # a correction starts from the score as it stood
    findings = []
    if abs(old - before) > TOLERANCE:
        findings.append(f"{where}: it starts at {old:g}, the one before ended at {before:g}")
    if not 0 <= new <= 100 or abs(new - old) > LARGEST_STEP + TOLERANCE:
        findings.append(f"{where}: from {old:g} to {new:g} is no step that one bead can make")
    return findings
