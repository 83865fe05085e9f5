"""The gate's log: one JSON object a line, rotated, bounded; a person can read it by bead."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "calls.jsonl"
SIZE_LIMIT = 8 << 20
FILES_KEPT = 5
REFUSALS_LOGGED = 500
"""Refusals of one grant that get a line each; after that one in a hundred, so that a student that hammers the
gate can't rotate the other beads' calls out of the log. The counters count them all."""
REFUSAL_SAMPLE = 100


class CallLog:
    """Appends entries to ``calls.jsonl`` and reads them back. Not for several processes at once."""

    def __init__(self, folder: Path, *, size_limit: int = SIZE_LIMIT, files_kept: int = FILES_KEPT) -> None:
        self._folder = folder
        self._size_limit = size_limit
        self._files_kept = files_kept
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = self._open()
        self._size = os.fstat(self._descriptor).st_size

    def _open(self) -> int:
        return os.open(self._folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _path(self, number: int) -> Path:
        return self._folder / (f"{FILE}.{number}" if number else FILE)

    def write(self, entry: dict[str, Any]) -> None:
        """Append one entry.

        Raises:
            OSError: the disk is full or the folder is gone.
        """
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if self._size and self._size + len(line) > self._size_limit:
            self._rotate()
        os.write(self._descriptor, line)
        self._size += len(line)

    def _rotate(self) -> None:
        os.close(self._descriptor)
        for number in range(self._files_kept - 1, 0, -1):
            newer = self._path(number - 1)
            if newer.exists():
                newer.replace(self._path(number))
        self._descriptor = self._open()
        self._size = 0

    def read(self, *, grant: str | None = None, bead: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return up to ``limit`` entries that match, the newest last."""
        found: list[dict[str, Any]] = []
        marks = [json.dumps(text).encode() for text in (grant, bead) if text is not None]
        for line in self._lines_backwards():
            if len(found) >= limit:
                break
            if not all(mark in line for mark in marks):  # far cheaper than parsing each line
                continue
            try:
                entry = json.loads(line)
            except ValueError:  # the last line of a gate that was killed while it wrote
                continue
            if grant not in (None, entry.get("grant")) or bead not in (None, entry.get("bead")):
                continue
            found.append(entry)
        return found[::-1]

    def _lines_backwards(self) -> Iterator[bytes]:
        for number in range(self._files_kept):
            try:
                content = self._path(number).read_bytes()
            except FileNotFoundError:
                continue
            yield from reversed(content.splitlines())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
