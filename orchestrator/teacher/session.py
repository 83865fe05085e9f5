"""What a teacher remembers between two lives (R-32, R-33), in its own folder and nobody else's."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag import files
from orchestrator.bookbag.record import now
from orchestrator.errors import BookbagCorruptError, SessionCorruptedError

if TYPE_CHECKING:
    from pathlib import Path

STATE_FILE: Final = "session.json"
_LIMIT: Final = 4 << 20  # bytes


@dataclass(slots=True)
class SleepState:
    """A teacher's state (R-33).

    ``building`` is the repository last worked on, ``task_queue`` the flagged beads that were not reviewed,
    ``scores_snapshot`` the last scores by bead, ``layer_0`` who the teacher is, ``layer_2_summary`` what it last did.
    """

    session_id: str
    agent: str
    building: str = ""
    task_queue: list[str] = field(default_factory=list)
    scores_snapshot: dict[str, int] = field(default_factory=dict)
    layer_0: str = ""
    layer_2_summary: str = ""
    timestamp: str = field(default_factory=now)


@dataclass(frozen=True, slots=True)
class ConsolidationArtifact:
    """One session, boiled down (R-33)."""

    session_id: str
    agent: str
    duration_minutes: float
    tasks_completed: list[str]
    domains_visited: list[str]
    key_decisions: list[str]
    patterns_observed: list[str]
    failed_approaches: list[str]
    compressed_output_size_tokens: int


def new_session_id() -> str:
    """Return an id that sorts by time."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


def save_state(folder: Path, state: SleepState) -> None:
    """Persist the state, replaced whole."""
    state.timestamp = now()
    files.replace_file(str(folder), STATE_FILE, json.dumps(asdict(state), indent=1).encode())


def load_state(folder: Path, agent: str) -> SleepState | None:
    """Return the persisted state, or None at the first boot.

    Raises:
        SessionCorruptedError: a file is there and is not this teacher's state.
    """
    try:
        raw = files.read_file(str(folder), STATE_FILE, limit=_LIMIT)
        data = None if raw is None else json.loads(raw)
    except (BookbagCorruptError, OSError, ValueError, RecursionError) as error:
        raise SessionCorruptedError(f"{folder / STATE_FILE} can't be read: {error!s:.200}") from None
    if data is None:
        return None
    if not _is_state(data):
        raise SessionCorruptedError(f"{folder / STATE_FILE} does not hold a session.")
    if data["agent"] != agent:
        raise SessionCorruptedError(f"{folder / STATE_FILE} is the session of {data['agent'][:60]!r}, not of {agent}.")
    return SleepState(**data)


def _is_state(data: Any) -> bool:
    if not isinstance(data, dict) or set(data) != {entry.name for entry in fields(SleepState)}:
        return False
    texts = all(
        isinstance(data[name], str)
        for name in ("session_id", "agent", "building", "layer_0", "layer_2_summary", "timestamp")
    )
    queue, scores = data["task_queue"], data["scores_snapshot"]
    return (
        texts
        and isinstance(queue, list)
        and all(isinstance(bead, str) for bead in queue)
        and isinstance(scores, dict)
        and all(isinstance(score, int) and not isinstance(score, bool) for score in scores.values())
    )
