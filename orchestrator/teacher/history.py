"""What a teacher did, one record per review or failed attempt (R-31). Used from several threads."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag.record import now

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "history.jsonl"
ROTATE_AT: Final = 4 << 20  # bytes; one older file is kept
DRIFT_WINDOW: Final = 20  # reviews
DRIFT_SHARE: Final = 0.85
_REMEMBERED: Final = 1000  # records in memory


class History:
    """This session's records in memory, and all of them in a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._entries: list[dict[str, Any]] = []
        self.reviews = 0
        self.failures = 0

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
        verdicts = [entry["verdict"] for entry in self.entries() if entry.get("verdict")][-DRIFT_WINDOW:]
        return len(verdicts) == DRIFT_WINDOW and verdicts.count("PASS") > DRIFT_SHARE * DRIFT_WINDOW

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
