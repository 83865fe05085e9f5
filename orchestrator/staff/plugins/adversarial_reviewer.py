"""Adversarial reviewer: looks at accepted work for signs that the judges were too kind. It gives no verdict.

It reads reports, not code: what it finds is a reason for a person to look, noted once a bead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orchestrator.staff.plugin import StaffResult, Trust

if TYPE_CHECKING:
    from orchestrator.staff.plugin import StaffContext
    from orchestrator.staff.sandbox import StaffSandbox

WINDOW = 50  # beads
LARGE = 400  # changed lines
_TESTS = re.compile(r"(^|/)(tests?|spec|__tests__)/|(^|/)test_[^/]*$|[._](test|spec)\.[a-z]+$")
_DELICATE = re.compile(
    r"(^|/)(\.github/|\.gitlab-ci|Jenkinsfile|Dockerfile|Makefile|setup\.py$|package\.json$|conftest\.py$)"
    r"|(^|/)(AGENTS|CLAUDE|SOUL)\.md$|(^|/)\.(pre-commit|npmrc|gitattributes)"
)


class AdversarialReviewer:
    """See the module."""

    name = "adversarial_reviewer"
    trust = Trust.VERIFIED

    def health_check(self) -> str:
        """Nothing is needed."""
        return ""

    def run(self, sandbox: StaffSandbox, ctx: StaffContext) -> StaffResult:  # noqa: ARG002 - the protocol's
        """Look at the accepted ones among the newest beads."""
        findings: list[str] = []
        for row in sandbox.beads(WINDOW):
            report = row["data"].get("report")
            if row["outcome"] != "accepted" or not report or row["human"] in {"approved", "declined"}:
                continue
            signs = suspicions(report)
            if signs:
                findings.append(f"{row['bead']}: {'; '.join(signs)}")
        return StaffResult(tuple(findings))


def suspicions(report: dict[str, Any]) -> list[str]:
    """Return why an accepted bead deserves a person's second look."""
    stat = report.get("diffstat") or {}
    size = stat.get("additions", 0) + stat.get("deletions", 0)
    files = [str(path) for path in report.get("files_changed") or []]
    scores = [score for score in (report.get("scores") or {}).values() if score is not None]
    signs = []
    if not report.get("findings") and size > LARGE:
        signs.append(f"{size} changed lines and not one finding")
    if (report.get("verification") or {}).get("status") == "not_configured" and size > 0:
        signs.append("no check of the repository's was run")
    if len(scores) == 2 and abs(scores[0] - scores[1]) >= 30:
        signs.append(f"the judges are {abs(scores[0] - scores[1]):g} points apart")
    if files and all(_TESTS.search(path) for path in files) and stat.get("deletions", 0) > stat.get("additions", 0):
        signs.append("only tests were changed, and more was taken away than added")
    if delicate := [path for path in files if _DELICATE.search(path)]:
        signs.append(f"it changes what runs by itself or steers agents: {', '.join(delicate[:3])}")
    return signs
