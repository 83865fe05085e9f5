"""The teacher's heartbeat, written by the loop itself: a loop that hangs is not healthy, whatever its process does."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag import files
from orchestrator.errors import BookbagCorruptError

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "heartbeat.json"
BEAT: Final = 5.0  # seconds between two beats, at most
STALE: Final = 30.0  # seconds without a beat after which a teacher is not healthy
_LIMIT: Final = 1 << 20


def beat(folder: Path, state: dict[str, Any]) -> None:
    """Write a heartbeat with what the principal may want to know. Not synced: it is worth nothing after a power cut."""
    data = json.dumps({"at": time.time(), "pid": os.getpid(), **state}).encode()
    files.replace_file(str(folder), FILE, data, durable=False)


def last_beat(folder: Path) -> dict[str, Any] | None:
    """Return the last heartbeat, or None when there is none that can be read."""
    try:
        raw = files.read_file(str(folder), FILE, limit=_LIMIT)
        state = json.loads(raw) if raw is not None else None
    except (BookbagCorruptError, OSError, ValueError):
        return None
    if (
        not isinstance(state, dict)
        or isinstance(state.get("at"), bool)
        or not isinstance(state.get("at"), (int, float))
    ):
        return None
    return state


def problem(folder: Path, *, now: float | None = None) -> str:
    """Return why the teacher is not healthy, or "" when it is."""
    state = last_beat(folder)
    if state is None:
        return "no heartbeat yet"
    age = (time.time() if now is None else now) - state["at"]
    return f"the last heartbeat is {age:.0f} s old" if age > STALE else ""
