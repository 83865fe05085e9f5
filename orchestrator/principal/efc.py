"""R-42: the inputs of Effective Feedback Compute (arXiv 2605.29682), recorded per feedback event, and its figure.

A feedback event counts when it is informative, valid, non-redundant and retained; the count is set in relation to the
task's demand. What the school takes for these four:

- **informative**: it says something to act on (a description, and a suggestion or a place), and nothing that the
  student had in its brief already: a finding that a fix round was given and that comes again tells nothing new.
- **valid**: it comes from a sealed verdict (others never get here), and where it cites a path, the path is one that
  the judges were shown.
- **non-redundant**: no event before it in the same bead has the same class and place.
- **retained**: it changed what came after. In a fix round: the issue does not come again. Otherwise the next judged
  bead of the same profile in the same domain tells, by whether it has an issue of that class. Until then it is open,
  and counts as not retained.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from orchestrator.principal.ledger import Ledger

DEMAND = {"easy": 1.0, "medium": 2.0, "hard": 4.0, "diploma": 8.0, "blocker": 8.0}
"""What a task of a difficulty demands: the doubling is ours, the paper leaves the unit open."""

WINDOW = 50
"""Judged beads of a profile that its figure is made of."""

_PATH = re.compile(r"[\w.-]+/[\w./-]+|\b[\w-]+\.[A-Za-z]{1,5}\b")
_LINE = re.compile(r"[:#]?\s*(?:L|lines? )?\d+(?:\s*-\s*\d+)?")


@dataclass(frozen=True, slots=True)
class Judged:
    """One bead of a profile that had an end of its own making."""

    bead: str
    domain: str
    difficulty: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Efc:
    """The figure of one bead, or of a profile over its last beads."""

    events: int
    effective: int
    open: int
    demand: float

    @property
    def value(self) -> float:
        """Effective events per unit of demand; 0 without any."""
        return self.effective / self.demand if self.demand else 0.0


def record(
    ledger: Ledger,
    bead: str,
    *,
    profile: str,
    domain: str,
    difficulty: str,
    outcome: Outcome,
    findings: Sequence[Mapping[str, Any]],
    check: str,
    paths: Sequence[str],
    fixes: str | None = None,
) -> bool:
    """Record a bead's end and its feedback events, once; return whether anything was recorded.

    Args:
        ledger: The store.
        bead: Which.
        profile: Whose.
        domain: Of the task.
        difficulty: Of the task.
        outcome: An end that the student did not make itself (infrastructure, cancelled) is not recorded.
        findings: Those of counted verdicts, each with its ``teacher``.
        check: The verification's status.
        paths: What the judges were shown.
        fixes: The bead whose findings this student had in its brief.
    """
    reviewed = outcome in {Outcome.ACCEPTED, Outcome.REJECTED}
    if not reviewed and not outcome.students_fault:
        return False
    with ledger.transaction() as db:
        if db.execute("SELECT 1 FROM judged WHERE bead=?", (bead,)).fetchone():
            return False
        known = _issues(db, fixes) if fixes else set()
        events = _events(findings, check, set(paths), known) if reviewed else []
        if reviewed:
            _tell_retained(db, bead, profile, domain, fixes, events)
        db.execute(
            "INSERT INTO judged VALUES (?,?,?,?,?,?,?)",
            (bead, time.time(), profile, domain, difficulty, outcome, DEMAND.get(difficulty, 2.0)),
        )
        db.executemany(
            "INSERT INTO feedback (bead,source,issue,place,informative,valid,non_redundant) VALUES (?,?,?,?,?,?,?)",
            [(bead, *event) for event in events],
        )
    return True


def history(ledger: Ledger, profile: str, *, limit: int = WINDOW) -> list[Judged]:
    """Return a profile's last judged beads, newest first."""
    with ledger.transaction() as db:
        rows = db.execute(
            "SELECT bead, domain, difficulty, outcome FROM judged WHERE profile=? ORDER BY at DESC LIMIT ?",
            (profile, limit),
        ).fetchall()
    return [Judged(**dict(row)) for row in rows]


def efc_of(ledger: Ledger, *, profile: str = "", bead: str = "") -> Efc:
    """Return the figure of one bead, or of a profile's last ``WINDOW`` beads."""
    with ledger.transaction() as db:
        which, value = ("bead=?", bead) if bead else ("profile=?", profile)
        beads = db.execute(
            f"SELECT bead, demand FROM judged WHERE {which} ORDER BY at DESC LIMIT ?",  # noqa: S608 - constant text
            (value, WINDOW),
        ).fetchall()
        events = [
            row
            for judged in beads
            for row in db.execute(
                "SELECT informative, valid, non_redundant, retained FROM feedback WHERE bead=?", (judged["bead"],)
            )
        ]
    counted = [row for row in events if row["informative"] and row["valid"] and row["non_redundant"]]
    return Efc(
        events=len(events),
        effective=sum(row["retained"] == 1 for row in counted),
        open=sum(row["retained"] is None for row in counted),
        demand=sum(judged["demand"] for judged in beads),
    )


def feedback_of(ledger: Ledger, bead: str) -> list[dict[str, Any]]:
    """Return a bead's feedback events with their inputs; ``retained`` is None while it is open."""
    with ledger.transaction() as db:
        rows = db.execute("SELECT * FROM feedback WHERE bead=? ORDER BY id", (bead,)).fetchall()
    flags = ("informative", "valid", "non_redundant", "retained")
    return [{**dict(row), **{name: None if row[name] is None else bool(row[name]) for name in flags}} for row in rows]


_Event = tuple[str, str, str, bool, bool, bool]


def _events(
    findings: Sequence[Mapping[str, Any]], check: str, paths: set[str], known: set[tuple[str, str]]
) -> list[_Event]:
    events: list[_Event] = []
    seen: set[tuple[str, str]] = set()
    names = {path.rpartition("/")[2] for path in paths} | paths
    for finding in findings:
        citation = str(finding.get("citation") or "")
        issue, place = _issue(finding), _place(citation)
        says = bool(str(finding.get("description") or "").strip())
        acts = bool(str(finding.get("suggestion") or "").strip() or citation.strip())
        cited = _PATH.findall(citation)
        valid = not cited or any(path.strip("./") in names or path in names for path in cited)
        informative = says and acts and (issue, place) not in known
        events.append((str(finding.get("teacher")), issue, place, informative, valid, (issue, place) not in seen))
        seen.add((issue, place))
    if check in {"failed", "could_not_run"}:
        event = ("check", f"check-{check.replace('_', '-')}", "")
        events.append((*event, event[1:] not in known, True, True))
    return events


def _issue(finding: Mapping[str, Any]) -> str:
    return " ".join(str(finding.get("issue_class") or finding.get("section") or "").lower().split())[:200]


def _place(citation: str) -> str:
    return " ".join(_LINE.sub("", citation.lower()).split())[:200]


def _issues(db: sqlite3.Connection, bead: str) -> set[tuple[str, str]]:
    return {
        (row["issue"], row["place"]) for row in db.execute("SELECT issue, place FROM feedback WHERE bead=?", (bead,))
    }


def _tell_retained(
    db: sqlite3.Connection, bead: str, profile: str, domain: str, fixes: str | None, events: Sequence[_Event]
) -> None:
    """Close the events that this bead tells about: those it was given to fix, and open ones of beads before it.

    A fix round knows best, so it has the last word on its own.
    """
    places = {(event[1], event[2]) for event in events}
    classes = {event[1] for event in events}
    rows = db.execute(
        "SELECT id, f.bead AS bead, issue, place FROM feedback f JOIN judged j ON j.bead=f.bead "
        "WHERE f.bead=? OR (retained IS NULL AND profile=? AND domain=?)",
        (fixes or "", profile, domain),
    ).fetchall()
    for row in rows:
        again = (row["issue"], row["place"]) in places if row["bead"] == fixes else row["issue"] in classes
        db.execute("UPDATE feedback SET retained=?, told_by=? WHERE id=?", (not again, bead, row["id"]))
