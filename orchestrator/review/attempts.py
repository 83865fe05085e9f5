"""How often a review was tried, when the next try is due, and when it is given up (R-37).

All of it lies in the bookbag, so that a restart forgets nothing: ``{teacher}_attempts`` is a list of ``{at, reason,
picked_up_at}``, ``{teacher}_picked_up_at`` the time of the last pick-up, ``{teacher}_parked`` the reason for giving up
("" while there is hope). A pick-up that led neither to a verdict nor to an attempt is that of a killed teacher.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag import locked_change, verdict_of
from orchestrator.review.visible import visible_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bookbag import Dirs

DEFAULT_ATTEMPTS: Final = 3
BACKOFF: Final = 5.0  # seconds after the first failure; doubled at each further one
LONGEST_BACKOFF: Final = 30.0
INTERRUPTED: Final = "the teacher ended in mid-review"


def stamp() -> str:
    """Return the current time as ISO-8601 in UTC, fine enough to tell two pick-ups apart."""
    return datetime.now(UTC).isoformat()


def attempts_of(bag: Mapping[str, Any], teacher: str) -> list[dict[str, Any]]:
    """Return the failed attempts so far; what does not look like one is left out."""
    attempts = bag.get(f"{teacher}_attempts")
    return [entry for entry in attempts if isinstance(entry, dict)] if isinstance(attempts, list) else []


def is_parked(bag: Mapping[str, Any], teacher: str) -> bool:
    """Whether this teacher has given the bead up, until a person asks for it again."""
    return bool(bag.get(f"{teacher}_parked"))


def seconds_until_due(bag: Mapping[str, Any], teacher: str, backoff: float = BACKOFF) -> float:
    """Return how long to wait for the next attempt; 0 when it is due.

    The wait is counted from the last failed attempt. One that was interrupted from outside is no reason to wait.
    """
    failed = [entry for entry in attempts_of(bag, teacher) if entry.get("reason") != INTERRUPTED]
    if not failed:
        return 0.0
    pause = min(LONGEST_BACKOFF, backoff * 2.0 ** min(len(failed) - 1, 10))
    try:
        last = datetime.fromisoformat(str(failed[-1].get("at")))
        elapsed = (datetime.now(UTC) - last).total_seconds()
    except (ValueError, TypeError):  # no time, or one without a zone: written by something else
        return 0.0
    return max(0.0, pause - elapsed) if elapsed >= 0 else 0.0  # a clock that was put back must not mean for ever


def was_interrupted(bag: Mapping[str, Any], teacher: str) -> bool:
    """Whether the last pick-up ended without a trace. Only whoever holds the claim may conclude that."""
    picked_up = bag.get(f"{teacher}_picked_up_at")
    if not picked_up or verdict_of(bag, teacher):
        return False
    return all(entry.get("picked_up_at") != picked_up for entry in attempts_of(bag, teacher))


def pick_up(
    bead: str, teacher: str, *, limit: int = DEFAULT_ATTEMPTS, alone: bool = True, dirs: Dirs | None = None
) -> str | None:
    """Note that the review begins; return the note, or None when this bead is not to be reviewed (any more).

    An interrupted pick-up before it is counted as an attempt, so that a bead that kills its teacher is parked too. That
    takes the claim: without it (``alone`` is false) the earlier pick-up may be a living teacher's.
    """
    note = stamp()

    def change(bag: dict[str, Any]) -> dict[str, Any] | None:
        if verdict_of(bag, teacher) or is_parked(bag, teacher):
            return None
        if alone and was_interrupted(bag, teacher):
            bag = _with_attempt(bag, teacher, INTERRUPTED, str(bag[f"{teacher}_picked_up_at"]), limit)
        if is_parked(bag, teacher):
            return bag
        return {**bag, f"{teacher}_picked_up_at": note}

    bag = locked_change(bead, change, dirs=dirs)
    return note if bag is not None and bag.get(f"{teacher}_picked_up_at") == note else None


def put_back(bead: str, teacher: str, note: str, *, dirs: Dirs | None = None) -> None:
    """Undo a pick-up that is given up without fault: it does not count as an attempt."""

    def change(bag: dict[str, Any]) -> dict[str, Any] | None:
        mine = bag.get(f"{teacher}_picked_up_at") == note and not verdict_of(bag, teacher)
        return {**bag, f"{teacher}_picked_up_at": ""} if mine else None

    locked_change(bead, change, dirs=dirs)


def count_attempt(
    bead: str, teacher: str, reason: str, note: str, *, limit: int = DEFAULT_ATTEMPTS, dirs: Dirs | None = None
) -> dict[str, Any] | None:
    """Add a failed attempt with its reason; after ``limit`` of them the bead is parked. The verdict stays empty.

    Returns:
        The bookbag as it is now; None when there is none, or its lock was not to be had.
    """

    def change(bag: dict[str, Any]) -> dict[str, Any] | None:
        return None if verdict_of(bag, teacher) else _with_attempt(bag, teacher, reason, note, limit)

    return locked_change(bead, change, dirs=dirs)


def unpark(bead: str, teacher: str, *, dirs: Dirs | None = None) -> dict[str, Any] | None:
    """Give a bead its attempts back (``school review BEAD``). The caller raises the flag again."""

    def change(bag: dict[str, Any]) -> dict[str, Any] | None:
        if verdict_of(bag, teacher):
            return None
        return {**bag, f"{teacher}_attempts": [], f"{teacher}_parked": "", f"{teacher}_picked_up_at": ""}

    return locked_change(bead, change, dirs=dirs)


def _with_attempt(bag: dict[str, Any], teacher: str, reason: str, note: str, limit: int) -> dict[str, Any]:
    reason = visible_line(reason, 500)
    attempts = [*attempts_of(bag, teacher), {"at": stamp(), "reason": reason, "picked_up_at": note}]
    changed = {**bag, f"{teacher}_attempts": attempts}
    if len(attempts) >= limit:
        changed[f"{teacher}_parked"] = f"given up after {len(attempts)} attempts, the last: {reason}"
    return changed
