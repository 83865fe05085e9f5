"""What a bookbag must look like (R-2, R-4, R-5, R-10). Says everything that is wrong, changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bookbag.bead import is_bead
from orchestrator.bookbag.record import FIELDS, FINDING_FIELDS, SCHEMA_VERSION, SEVERITIES, STATES, VERDICTS
from orchestrator.bookbag.states import state_problems

if TYPE_CHECKING:
    from collections.abc import Callable

_HEX = frozenset("0123456789abcdef")


def _number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _time(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return False
    return moment.utcoffset() == timedelta(0)


def _sha(value: object) -> bool:
    return isinstance(value, str) and (value == "" or (len(value) in (40, 64) and _HEX.issuperset(value)))


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "version": (f"a number from 1 to {SCHEMA_VERSION}", lambda v: isinstance(v, int) and _number(v, 1, SCHEMA_VERSION)),
    "bead": ("a bead id", is_bead),
    "text": ("text", _text),
    "text or null": ("text or null", lambda v: v is None or _text(v)),
    "text or object": ("text or an object", lambda v: isinstance(v, str | dict)),
    "text or texts": ("text or a list of texts", lambda v: _text(v) or _texts(v)),
    "texts": ("a list of texts", _texts),
    "object or null": ("an object or null", lambda v: v is None or isinstance(v, dict)),
    "objects": ("a list of objects", lambda v: isinstance(v, list) and all(isinstance(item, dict) for item in v)),
    "findings": ("a list", lambda v: isinstance(v, list)),  # each finding is looked at by itself
    "flag": ("true or false", lambda v: isinstance(v, bool)),
    "sha": ("a full object name or empty", _sha),
    "state": (f"one of {', '.join(STATES)}", lambda v: v in STATES),
    "verdict": ("'', 'PASS' or 'FAIL'", lambda v: v in VERDICTS),
    "score": ("a number from 0 to 100, or null", lambda v: v is None or _number(v, 0, 100)),
    "confidence": ("a number from 0 to 1, or null", lambda v: v is None or _number(v, 0, 1)),
    "time": ("an ISO-8601 time in UTC", _time),
    "time or empty": ("an ISO-8601 time in UTC, or empty", lambda v: v == "" or _time(v)),
}
"""Kind of a field -> what it wants, in words, and the check."""


def validate_bookbag(bag: object) -> list[str]:
    """Return everything that is wrong with a record, as sentences; an empty list when nothing is (R-3, R-4).

    Unknown fields are fine (R-2). A verdict can't be checked here for being genuine: that is the seal's work.
    """
    if not isinstance(bag, Mapping):
        return [f"a bookbag is an object, not a {type(bag).__name__}"]
    problems = []
    for name, field in FIELDS.items():
        if name not in bag:
            problems.append(f"{name} is missing")
            continue
        wanted, fits = KINDS[field.kind]
        if not fits(bag[name]):
            problems.append(f"{name} is {_short(bag[name])}, not {wanted}")
        elif field.kind == "findings":
            problems += [f"{name}[{at}] {problem}" for at, item in enumerate(bag[name]) for problem in _finding(item)]
    if not any(problem.startswith(("state ", "cto_verdict ", "coo_verdict ", "accepted ")) for problem in problems):
        problems += state_problems(bag)
    return problems


def validate_finding(finding: object) -> list[str]:
    """Return everything that is wrong with one finding (R-10)."""
    return [f"the finding {problem}" for problem in _finding(finding)]


def _finding(finding: object) -> list[str]:
    if not isinstance(finding, Mapping):
        return [f"is {_short(finding)}, not an object"]
    problems = [f"has no {name}" for name in FINDING_FIELDS if name not in finding]
    problems += [
        f"has a {name} that is not text" for name in FINDING_FIELDS if name in finding and not _text(finding[name])
    ]
    severity = finding.get("severity")
    if isinstance(severity, str) and severity not in SEVERITIES:
        problems.append(f"has severity {severity[:20]!r}, not one of {', '.join(SEVERITIES)}")
    return problems


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
