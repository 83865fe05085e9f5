"""The text of a notice: what was judged, how, and the three commands (R-45).

What a student, a repository or a model wrote stands on lines of its own behind a mark, one safe line each, so that
nothing of it can look like a command or like the letter itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.review.visible import visible_line

if TYPE_CHECKING:
    from collections.abc import Mapping

FINDINGS_SHOWN = 20
_ORDER = {"CRITICAL": 0, "HIGH": 1, "MEDIUM": 2, "LOW": 3}


def subject(report: Mapping[str, Any]) -> str:
    """Return the subject line."""
    return f"[school] {report['outcome'].replace('_', ' ')}: {_line(report['task'], 70)} ({report['bead']})"


def letter(report: Mapping[str, Any], token: str, *, no_approval: str, days: int) -> str:
    """Return the text.

    Args:
        report: The bead's report.
        token: The notice's token.
        no_approval: Why it can't be approved, or "".
        days: How long it can be answered.
    """
    stat = report["diffstat"]
    check = report["verification"]
    lines = [
        f"bead          {report['bead']}",
        f"task          {_line(report['task'], 300)}",
        f"repository    {_line(report['repo'], 200)}",
        f"outcome       {report['outcome'].replace('_', ' ')}: {_line(report['reason'], 300)}",
        *[f"{name.upper():<13} {_verdict(report, name)}" for name in ("cto", "coo")],
        f"check         {check['status'].replace('_', ' ')}"
        + (f" ({_line(check['command'], 80)})" if check["command"] else ""),
        f"change        {stat['files']} files, +{stat['additions']} -{stat['deletions']}",
        f"commit        {report['head_sha'] or 'none'}",
        *[f"branch        {report['branch']}" for _ in range(1) if report["branch"]],
    ]
    if report["rehearsal"]:
        lines.append("note          a scripted model answered: this is a trial, not work")
    lines += ["", *_findings(report), "", *_commands(report, token, no_approval)]
    lines += ["", f"One answer counts, within {days} days, from an address that is allowed to answer."]
    return "\n".join(lines) + "\n"


def _verdict(report: Mapping[str, Any], teacher: str) -> str:
    score = report["scores"][teacher]
    return (report["verdicts"][teacher] or "no verdict") + ("" if score is None else f", score {score:g}")


def _findings(report: Mapping[str, Any]) -> list[str]:
    found = sorted(report["findings"], key=lambda finding: _ORDER.get(finding.get("severity", ""), 9))
    if not found:
        return ["no findings"]
    lines = [f"{len(found)} findings" + (f", the first {FINDINGS_SHOWN}:" if len(found) > FINDINGS_SHOWN else ":")]
    for finding in found[:FINDINGS_SHOWN]:
        where = _line(finding.get("section", ""), 80)
        lines.append(f"  - {finding.get('severity', '')} {where}: {_line(finding.get('description', ''), 240)}")
    return lines


def _commands(report: Mapping[str, Any], token: str, no_approval: str) -> list[str]:
    lines = ["Answer this mail in plain text with one of these lines, and no other line that begins with a slash:", ""]
    if no_approval:
        lines.insert(0, f"It can't be approved: {_line(no_approval, 300)}.\n")
    else:
        lines.append(f"    /approve {token} {report['head_sha']}")
    return [*lines, f"    /reject {token} WHY", f"    /fix {token} WHAT TO DO DIFFERENTLY"]


def _line(text: object, limit: int) -> str:
    return visible_line(" ".join(str(text or "").split()), limit)
