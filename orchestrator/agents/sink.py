"""Where PID 1 writes events: its own stdout and ``events.jsonl``, with caps, and never blocking on either.

Stdout is the record that counts (the engine holds its other end); the file lies in the outbox, where the student
can reach it. A reader of stdout that stands still must not hold PID 1 past its deadline, so output waits in memory
and the agent is held back instead (``full``).
"""

from __future__ import annotations

import json
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TOTAL = 16 * 1024 * 1024  # bytes of events in a leaf's life
RESERVED = 256 * 1024  # of these, kept for the events that tell how it ended
MAX_PENDING = 1024 * 1024  # bytes that may wait for stdout before the agent is held back
MAX_TEXT = 16_000  # characters of a string in an event
MAX_PREVIEW = 300
CUT = "…"


def clip(text: str, limit: int) -> str:
    """Cut a text to ``limit`` characters, the last one an ellipsis when something was cut."""
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


def encode(kind: str, fields: dict[str, Any]) -> bytes:
    """Make one JSONL event of scalar fields; strings are clipped, anything else but a scalar is left out.

    Raises:
        ValueError: A number that JSON does not know (NaN, infinity).
    """
    event: dict[str, Any] = {"v": 1, "ts": round(time.time(), 3), "type": kind}
    for name, value in fields.items():
        if name in event:
            continue
        if isinstance(value, str):
            event[name] = clip(value, MAX_PREVIEW if name == "preview" else MAX_TEXT)
        elif value is None or isinstance(value, (bool, int, float)):
            event[name] = value
    return json.dumps(event, allow_nan=False).encode("ascii") + b"\n"


class Sink:
    """The two places events go to."""

    def __init__(self, stdout: int, file: int | None, *, max_total: int = MAX_TOTAL) -> None:
        self._stdout: int | None = stdout
        self._file = file
        self._room = max_total
        self._pending = bytearray()
        self.dropped = 0
        os.set_blocking(stdout, False)

    @property
    def full(self) -> bool:
        """Stdout's reader is behind: take nothing more from the agent for now."""
        return len(self._pending) > MAX_PENDING

    @property
    def waiting(self) -> bool:
        """Something still waits for stdout."""
        return bool(self._pending)

    def write(self, line: bytes, *, essential: bool = False, to_stdout: bool = True) -> None:
        """Take one line. A line past the cap is dropped and counted; an essential one has room of its own."""
        if len(line) > self._room - (0 if essential else RESERVED):
            self.dropped += 1
            return
        self._room -= len(line)
        if self._file is not None:
            try:
                os.write(self._file, line)
            except OSError:  # a full outbox: stdout remains
                os.close(self._file)
                self._file = None
        if to_stdout and self._stdout is not None:
            self._pending += line
            self.push()

    def push(self) -> None:
        """Write to stdout what it takes now."""
        while self._pending and self._stdout is not None:
            try:
                written = os.write(self._stdout, self._pending[:65536])
            except BlockingIOError:
                return
            except OSError:  # the reader is gone for good
                self._stdout = None
                self._pending.clear()
                return
            del self._pending[:written]

    def flush(self, *, seconds: float) -> None:
        """Push until nothing waits, at most for ``seconds``."""
        limit = time.monotonic() + seconds
        while self._pending and self._stdout is not None and (left := limit - time.monotonic()) > 0:
            poller = select.poll()
            poller.register(self._stdout, select.POLLOUT)
            poller.poll(left * 1000)
            self.push()

    def close(self) -> None:
        """Close the file; stdout belongs to the process."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def open_events_file(path: str) -> int | None:
    """Make the events file anew, never through a link; None when the outbox does not take it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND
    try:
        return os.open(path, flags, 0o644)
    except OSError:
        return None
