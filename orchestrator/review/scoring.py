"""Score and verdict of one review, computed from its findings (R-38). The model proposes, this decides."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from orchestrator.errors import ReviewError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEVERITIES: Final = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
"""Worst first (R-10)."""

BLOCKING: Final = frozenset({"CRITICAL", "HIGH"})
"""One finding of these fails the review."""

PASS: Final = "PASS"  # noqa: S105 - a verdict
FAIL: Final = "FAIL"

WEIGHTS: Final[Mapping[str, tuple[int, int, int, int]]] = MappingProxyType(
    {
        "easy": (25, 8, 4, 2),
        "medium": (25, 12, 6, 3),
        "hard": (25, 15, 8, 3),
        "diploma": (25, 15, 8, 3),
    }
)
"""What a finding costs, in the order of SEVERITIES."""

FLOORS: Final[Mapping[str, int]] = MappingProxyType({"easy": 50, "medium": 40, "hard": 30, "diploma": 30})
"""The lowest score a review can give."""


def graded_as(difficulty: str) -> str:
    """Return the difficulty whose table applies: a task marked ``blocker`` counts as diploma (R-40).

    Raises:
        ReviewError: the difficulty is not one of the school's.
    """
    graded = "diploma" if difficulty == "blocker" else difficulty
    if graded not in WEIGHTS:
        raise ReviewError(
            f"Unknown difficulty {difficulty!r}: the review can't be scored.",
            next_step="Use easy, medium, hard or diploma (or blocker).",
        )
    return graded


def score(severities: Iterable[str], difficulty: str) -> int:
    """Return ``max(floor, 100 - sum of weights)``, 0 to 100 (R-38).

    Raises:
        ReviewError: an unknown difficulty or severity.
    """
    graded = graded_as(difficulty)
    weights = dict(zip(SEVERITIES, WEIGHTS[graded], strict=True))
    try:
        cost = sum(weights[severity] for severity in severities)
    except KeyError as error:
        raise ReviewError(f"Unknown severity {error.args[0]!r}.") from None
    return max(FLOORS[graded], 100 - cost)


def verdict(severities: Iterable[str], said: str) -> str:
    """Return PASS only when the model said PASS and no finding is CRITICAL or HIGH (R-38)."""
    return PASS if said == PASS and not BLOCKING.intersection(severities) else FAIL
