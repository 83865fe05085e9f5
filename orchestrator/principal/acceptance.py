"""R-39: what makes a bead accepted. A pure function of the record; it decides no verdict, score or finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MINIMUM_SCORE = 50
TEACHERS = ("cto", "coo")


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a bead is accepted, and every reason why not."""

    accepted: bool
    reasons: tuple[str, ...]


def decide(bag: Mapping[str, Any], verification: str) -> Decision:
    """Apply the rule to a reviewed bookbag whose seals were verified.

    Args:
        bag: The bookbag.
        verification: ``passed``, ``failed``, ``could_not_run`` or ``not_configured``.
    """
    reasons: list[str] = []
    for teacher in TEACHERS:
        name = teacher.upper()
        verdict = bag.get(f"{teacher}_verdict", "")
        score = bag.get(f"{teacher}_score")
        if verdict != "PASS":
            reasons.append(f"{name} says {verdict or 'nothing'}")
        if not isinstance(score, (int, float)) or isinstance(score, bool) or score < MINIMUM_SCORE:
            reasons.append(f"{name}'s score is {score} (at least {MINIMUM_SCORE} is needed)")
        if any(finding.get("severity") == "CRITICAL" for finding in bag.get(f"{teacher}_findings") or []):
            reasons.append(f"{name} found something CRITICAL")
    if verification not in {"passed", "not_configured"}:
        reasons.append(f"verification: {verification.replace('_', ' ')}")
    return Decision(not reasons, tuple(reasons))
