"""What a teacher did, one record per review or failed attempt (R-31). Used from several threads."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag.record import now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FILE: Final = "history.jsonl"
ROTATE_AT: Final = 4 << 20  # bytes; one older file is kept
DRIFT_WINDOW: Final = 20  # reviews
DRIFT_SHARE: Final = 0.85
_REMEMBERED: Final = 1000  # records in memory
_TAIL: Final = 64 << 10  # bytes of the file that are read back


class History:
    """This session's records in memory, and all of them in a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._entries: list[dict[str, Any]] = []
        self.reviews = 0
        self.failures = 0
        # over restarts: a window that began anew with each life would never be full in a short one
        earlier = [entry for entry in read_history(folder, limit=_REMEMBERED) if entry.get("verdict")]
        self._window: deque[dict[str, Any]] = deque(earlier, maxlen=DRIFT_WINDOW)

    def add(self, bead: str, **details: Any) -> None:
        """Add a record; ``verdict`` among the details tells a review from a failed attempt.

        Raises:
            OSError: the file can't be written; the record is kept in memory.
        """
        entry = {"at": now(), "bead": bead, **details}
        with self._lock:
            self._entries.append(entry)
            del self._entries[:-_REMEMBERED]
            if entry.get("verdict"):
                self.reviews += 1
                self._window.append(entry)
            else:
                self.failures += 1
            self._write(json.dumps(entry).encode() + b"\n")

    def entries(self) -> list[dict[str, Any]]:
        """Return this session's records, oldest first."""
        with self._lock:
            return list(self._entries)

    @property
    def drifting(self) -> bool:
        """Whether more than 85 % of the last reviews passed, over a full window (R-37)."""
        with self._lock:
            return bool(drift(list(self._window))["drifting"])

    def _write(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > ROTATE_AT:
            self._path.replace(self._path.with_suffix(".jsonl.1"))


def drift(reviews: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of the last reviews, oldest first, over one window (R-37).

    Returns:
        ``window`` (reviews in it), ``passed``, ``share`` (of them, None without any), ``drifting``, ``second_looks``
        (a PASS without a finding was doubted) and ``found_at_second`` (the doubt found something).
    """
    window = [entry for entry in reviews if entry.get("verdict")][-DRIFT_WINDOW:]
    passed = sum(entry["verdict"] == "PASS" for entry in window)
    second = [entry for entry in window if entry.get("second_look")]
    return {
        "window": len(window),
        "passed": passed,
        "share": passed / len(window) if window else None,
        "drifting": len(window) == DRIFT_WINDOW and passed > DRIFT_SHARE * DRIFT_WINDOW,
        "second_looks": len(second),
        "found_at_second": sum(bool(entry.get("issue_classes")) for entry in second),
    }


def read_history(folder: Path, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest records of the file, oldest first; lines that are none are left out."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        size = os.fstat(descriptor).st_size
        raw = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    except OSError:
        return []
    finally:
        os.close(descriptor)
    lines = raw.splitlines()[1 if size > _TAIL else 0 :]  # the first may be a part of one
    found: list[dict[str, Any]] = []
    for line in lines[-limit:]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("bead"), str):
            found.append(entry)
    return found
