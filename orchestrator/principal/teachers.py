"""What a teacher looks like from outside: its state, history, drift, and how often it agrees with its colleague.

A teacher never sees the other verdict (R-30), so agreement is counted here, from the ledger's reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from orchestrator.bookbag import files
from orchestrator.bookbag.record import TEACHERS
from orchestrator.errors import BookbagCorruptError, SessionCorruptedError, UsageError
from orchestrator.principal.ledger import Ledger
from orchestrator.teacher import health
from orchestrator.teacher.history import drift, read_history
from orchestrator.teacher.session import load_state
from orchestrator.teacher.sleep import CONSOLIDATED, LOG_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.home import Home

HISTORY = 20  # reviews shown
AGREEMENT = 200  # beads over which agreement is counted
_LOG_LIMIT = 4 << 20  # bytes
_LOG_SHOWN = 10  # entries


def teacher_report(home: Home, teacher: str) -> dict[str, Any]:
    """Return everything that ``school teacher`` shows.

    Raises:
        UsageError: there is no such teacher.
    """
    if teacher not in TEACHERS:
        raise UsageError(f"There is no teacher {teacher!r}.", next_step=f"Use {' or '.join(TEACHERS)}.")
    folder = home.sessions / teacher
    beat = health.last_beat(folder)
    state, problem = _state(folder, teacher)
    reports: list[Mapping[str, Any]] = []
    if home.ledger.exists():
        with Ledger(home.ledger) as ledger:
            reports = [row["data"]["report"] for row in ledger.beads(limit=AGREEMENT) if row["data"].get("report")]
    history = read_history(folder, limit=1000)
    return {
        "teacher": teacher,
        "problem": health.problem(folder) if beat else "it has never been up",
        "heartbeat": beat,
        "session": state,
        "session_problem": problem,
        "history": history[-HISTORY:],
        "drift": drift(history),
        "agreement": agreement(reports, teacher),
        "sessions": files.names_in(str(folder / CONSOLIDATED), ".yaml"),
        "log": _log(folder),
    }


def agreement(reports: Sequence[Mapping[str, Any]], teacher: str) -> dict[str, Any]:
    """Return how a teacher's verdicts stand to its colleague's.

    Returns:
        ``beads`` with both verdicts, ``agreed`` (of them), ``share`` (None without any), ``kappa`` (Cohen's: the share
        above what chance gives; None where chance alone agrees), ``stricter`` and ``milder`` (times it alone failed or
        passed), ``score_gap`` (mean of its score less the other's, None without scores).
    """
    other = next(name for name in TEACHERS if name != teacher)
    pairs = [
        (report["verdicts"][teacher] == "PASS", report["verdicts"][other] == "PASS")
        for report in reports
        if report["verdicts"].get(teacher) and report["verdicts"].get(other)
    ]
    gaps = [
        report["scores"][teacher] - report["scores"][other]
        for report in reports
        if report["scores"].get(teacher) is not None and report["scores"].get(other) is not None
    ]
    count = len(pairs)
    agreed = sum(own == others for own, others in pairs)
    return {
        "beads": count,
        "agreed": agreed,
        "share": agreed / count if count else None,
        "kappa": _kappa(pairs),
        "stricter": sum(others and not own for own, others in pairs),
        "milder": sum(own and not others for own, others in pairs),
        "score_gap": sum(gaps) / len(gaps) if gaps else None,
    }


def _kappa(pairs: list[tuple[bool, bool]]) -> float | None:
    if not pairs:
        return None
    count = len(pairs)
    observed = sum(own == others for own, others in pairs) / count
    own_pass, other_pass = sum(own for own, _ in pairs) / count, sum(others for _, others in pairs) / count
    chance = own_pass * other_pass + (1 - own_pass) * (1 - other_pass)
    return None if chance == 1 else (observed - chance) / (1 - chance)


def _state(folder: Path, teacher: str) -> tuple[dict[str, Any] | None, str]:
    try:
        state = load_state(folder, f"teacher-{teacher}")
    except SessionCorruptedError as error:
        return None, error.message
    if state is None:
        return None, ""
    return {
        "session_id": state.session_id,
        "building": state.building,
        "task_queue": state.task_queue,
        "scores_snapshot": state.scores_snapshot,
        "layer_0": state.layer_0,
        "layer_2_summary": state.layer_2_summary,
        "timestamp": state.timestamp,
    }, ""


def _log(folder: Path) -> list[dict[str, Any]]:
    """Return the last entries of the Library Log; one that can't be read ends the list."""
    try:
        raw = files.read_file(str(folder), LOG_FILE, limit=_LOG_LIMIT) or b""
        documents = raw.decode("utf-8", "replace").split("---\n")[-_LOG_SHOWN:]
        found = [yaml.safe_load(document) for document in documents if document.strip()]
    except (BookbagCorruptError, OSError, yaml.YAMLError):
        return []
    return [{name: str(value) for name, value in entry.items()} for entry in found if isinstance(entry, dict)]
