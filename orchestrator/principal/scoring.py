"""R-41: a student profile's score after a bead. The store is the ledger; each change is kept with its cause."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.principal.ledger import Ledger
    from orchestrator.sandbox.outcome import Outcome

START = 50.0
REHEARSED = "rehearsal:"
"""Prefix of a profile's score on the scripted model."""
KEEP = 0.7
GATES = {"easy": 0, "medium": 25, "hard": 50, "diploma": 75}


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A profile's score before and after, and the gates (R-40) that it crossed, upwards or downwards."""

    old: float
    new: float
    gates_crossed: tuple[str, ...]


def task_score(*, accepted: bool, teachers: tuple[float, float]) -> float:
    """Return the score of one reviewed task, 0 to 100."""
    mean = sum(teachers) / len(teachers)
    return max(60.0, mean) if accepted else min(40.0, mean)


def blend(old: float, score: float) -> float:
    """Return the profile's new score."""
    return max(0.0, min(100.0, KEEP * old + (1 - KEEP) * score))


def current(ledger: Ledger, profile: str) -> float:
    """Return a profile's score; a new one starts at 50."""
    with ledger.transaction() as db:
        row = db.execute("SELECT score FROM scores WHERE profile=?", (profile,)).fetchone()
    return float(row["score"]) if row else START


def evaluate_and_update(
    ledger: Ledger, profile: str, bead: str, outcome: Outcome, *, teachers: tuple[float, float] | None
) -> ScoreChange | None:
    """Score a bead for its profile, once: a second call for the same bead changes nothing.

    Args:
        ledger: The store.
        profile: The student's profile.
        bead: What was done.
        outcome: How it ended.
        teachers: Both teachers' scores when it was reviewed.

    Returns:
        The change, or None for an outcome that scores nothing.
    """
    if teachers is not None:
        score = task_score(accepted=outcome == "accepted", teachers=teachers)
    elif outcome.students_fault:
        score = 0.0
    else:
        return None
    with ledger.transaction() as db:
        done = db.execute("SELECT old, new FROM score_changes WHERE bead=? AND profile=?", (bead, profile)).fetchone()
        if done:
            old, new = float(done["old"]), float(done["new"])
        else:
            row = db.execute("SELECT score FROM scores WHERE profile=?", (profile,)).fetchone()
            old = float(row["score"]) if row else START
            new = blend(old, score)
            now = time.time()
            db.execute("INSERT OR REPLACE INTO scores VALUES (?,?,?)", (profile, new, now))
            db.execute(
                "INSERT INTO score_changes (at,profile,bead,old,new,cause) VALUES (?,?,?,?,?,?)",
                (now, profile, bead, old, new, f"{outcome}: task score {score:g}"),
            )
    crossed = tuple(name for name, gate in GATES.items() if (old >= gate) != (new >= gate))
    return ScoreChange(old, new, crossed)


def scores(ledger: Ledger) -> dict[str, float]:
    """Return every profile's score that ever changed."""
    with ledger.transaction() as db:
        rows = db.execute("SELECT profile, score FROM scores ORDER BY profile").fetchall()
    return {row["profile"]: float(row["score"]) for row in rows}


def changes(ledger: Ledger, *, profile: str = "", bead: str = "", limit: int = 50) -> list[dict[str, Any]]:
    """Return score changes, newest first, each with bead, old, new and cause."""
    where = {"profile": profile, "bead": bead}
    terms = [f"{name}=?" for name, value in where.items() if value] or ["1"]
    with ledger.transaction() as db:
        rows = db.execute(
            f"SELECT at, profile, bead, old, new, cause FROM score_changes WHERE {' AND '.join(terms)} "  # noqa: S608
            "ORDER BY id DESC LIMIT ?",
            (*[value for value in where.values() if value], limit),
        ).fetchall()
    return [dict(row) for row in rows]
