"""The states of a bead's judgment and who may make which move (R-11 to R-13).

::

    (nothing) ──student, principal──> WRITTEN
    WRITTEN ──cto──> CTO_REVIEWED ──coo──> REVIEWED
    WRITTEN ──coo──> COO_REVIEWED ──cto──> REVIEWED
    WRITTEN ──principal, both verdicts in one write──> REVIEWED
    REVIEWED ──principal──> SCORED ──principal──> DISPOSED

The principal reviews in a teacher's place only in the synchronous way (R-14); when one teacher has spoken
already, it may fill the other's verdict, and no more than that. A person's answer is the ledger's, not a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from orchestrator.bookbag.record import (
    COO_REVIEWED,
    CTO_REVIEWED,
    DISPOSED,
    FAIL,
    PASS,
    REVIEWED,
    SCORED,
    STATES,
    TEACHERS,
    WRITTEN,
    verdict_of,
)
from orchestrator.errors import TransitionError

if TYPE_CHECKING:
    from collections.abc import Mapping

Actor = Literal["student", "principal", "cto", "coo"]

_REVIEWED_BY = {"cto": CTO_REVIEWED, "coo": COO_REVIEWED}

MOVES: dict[tuple[str | None, str], frozenset[str]] = {
    (None, WRITTEN): frozenset({"student", "principal"}),
    (WRITTEN, CTO_REVIEWED): frozenset({"cto"}),
    (WRITTEN, COO_REVIEWED): frozenset({"coo"}),
    (CTO_REVIEWED, REVIEWED): frozenset({"coo", "principal"}),
    (COO_REVIEWED, REVIEWED): frozenset({"cto", "principal"}),
    (WRITTEN, REVIEWED): frozenset({"principal"}),
    (REVIEWED, SCORED): frozenset({"principal"}),
    (SCORED, DISPOSED): frozenset({"principal"}),
}
"""Every allowed move with the actors that may make it."""

# which verdicts are filled in which state: cto's, coo's
_FILLED = {
    WRITTEN: (False, False),
    CTO_REVIEWED: (True, False),
    COO_REVIEWED: (False, True),
    REVIEWED: (True, True),
    SCORED: (True, True),
    DISPOSED: (True, True),
}


def transition(old: str | None, new: str, actor: Actor) -> str:
    """Return ``new`` when ``actor`` may move a bead from ``old`` (None: no bookbag yet) to it.

    Raises:
        TransitionError: The move does not exist (R-11), or is somebody else's (R-13).
    """
    may = MOVES.get((old, new))
    if may is None:
        after = sorted(state for (source, state) in MOVES if source == old)
        raise TransitionError(
            f"no move from {old or 'nothing'} to {new}", next_step=f"from there: {', '.join(after) or 'none'}"
        )
    if actor not in may:
        raise TransitionError(f"{actor} may not move a bead from {old or 'nothing'} to {new}; {_either(may)} may")
    return new


def state_after_review(state: str, teacher: str) -> str:
    """Return the state once ``teacher`` has added its verdict to a bead in ``state``.

    Raises:
        TransitionError: That teacher's verdict can't be added there: it is there already, or there is no such teacher.
    """
    if teacher not in TEACHERS:
        raise TransitionError(f"{teacher} is not a teacher")
    (other,) = (name for name in TEACHERS if name != teacher)
    if state == WRITTEN:
        return _REVIEWED_BY[teacher]
    if state == _REVIEWED_BY[other]:
        return REVIEWED
    raise TransitionError(f"a bead in {state} takes no verdict of {teacher}")


def awaits(bag: Mapping[str, Any], teacher: str) -> bool:
    """Whether ``teacher`` has this bead still to review: its own verdict is empty (R-17) and its state allows one."""
    if verdict_of(bag, teacher):
        return False
    try:
        state_after_review(bag.get("state", WRITTEN), teacher)
    except TransitionError:
        return False
    return True


def advance(bag: Mapping[str, Any], new: str, actor: Actor) -> dict[str, Any]:
    """Return a copy of a record in its new state; ``bag`` holds what the move brings (the verdicts) already.

    Raises:
        TransitionError: ``transition`` refuses the move; or the verdicts don't fit the new state (R-12); or the
            record says accepted without two PASS (R-4, R-12).
    """
    transition(bag.get("state"), new, actor)
    moved = {**bag, "state": new}
    problems = state_problems(moved)
    if problems:
        raise TransitionError(f"bead {bag.get('bead')} can't become {new}: {'; '.join(problems)}")
    return moved


def state_problems(bag: Mapping[str, Any]) -> list[str]:
    """Return what contradicts itself among state, verdicts and acceptance (R-4, R-12); empty when nothing does."""
    state = bag.get("state")
    if not isinstance(state, str) or state not in _FILLED:
        return [f"state is {state!r}, not one of {', '.join(STATES)}"]
    problems = []
    verdicts = {teacher: verdict_of(bag, teacher) for teacher in TEACHERS}
    for (teacher, verdict), filled in zip(verdicts.items(), _FILLED[state], strict=True):
        if bool(verdict) != filled:
            wanted = f"needs {teacher}_verdict" if filled else f"has no {teacher}_verdict yet"
            problems.append(f"state {state} {wanted}, which is {verdict!r}")
    if bag.get("accepted") and any(verdict != PASS for verdict in verdicts.values()):
        reason = "one is FAIL" if FAIL in verdicts.values() else "one is missing"
        problems.append(f"accepted is true without both verdicts PASS: {reason}")
    return problems


def _either(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
