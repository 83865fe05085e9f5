"""What the agent's side says over its pipes, checked before it becomes an event.

The agent is untrusted: it may write anything. Only the event types that are an agent's own pass; ``entry.*`` and
``agent.finished`` are PID 1's to write.
"""

from __future__ import annotations

import json
import os

from orchestrator.agents.sink import Sink, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


AGENT_TYPES = frozenset(
    {"agent.started", "turn", "tool.call", "tool.result", "message", "usage", "output", "warning", "error"}
)
RESULT = "result"  # the agent's last word, for PID 1 alone: it becomes outcome.json and agent.finished
MAX_LINE = 4 * 1024 * 1024
MAX_OUTPUT_LINE = 16 * 1024
READ_SIZE = 65536


class Lines:
    """Splits what a non-blocking descriptor gives into lines; a line over the limit is cut."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self.open = True
        self._limit = limit
        self._rest = b""
        self._skipping = False
        os.set_blocking(descriptor, False)

    def read(self) -> tuple[list[bytes], int]:
        """Take what is there: whole lines, and how many bytes were read (0: nothing for now, or the end)."""
        try:
            data = os.read(self.descriptor, READ_SIZE)
        except BlockingIOError:
            return [], 0
        if not data:
            self.open = False
            rest, self._rest = self._rest, b""
            return ([rest] if rest else []), 0
        *lines, rest = (self._rest + data).split(b"\n")
        if self._skipping and lines:
            lines.pop(0)
            self._skipping = False
        if self._skipping:
            rest = b""
        elif len(rest) > self._limit:
            lines.append(rest[: self._limit])
            rest, self._skipping = b"", True
        self._rest = rest
        return lines, len(data)

    def close(self) -> None:
        """Close the descriptor."""
        self.open = False
        os.close(self.descriptor)


class Intake:
    """Turns the agent's two pipes (events, and stray output) into events in a sink."""

    def __init__(self, events: int, output: int, sink: Sink) -> None:
        self.events = Lines(events, MAX_LINE)
        self.output = Lines(output, MAX_OUTPUT_LINE)
        self.result: dict[str, Any] | None = None
        self.usage: dict[str, Any] = {}
        self.turns = 0
        self.refused = 0
        self._sink = sink

    def take(self) -> int:
        """Read once from each pipe; return the number of bytes."""
        total = 0
        if self.events.open:
            lines, size = self.events.read()
            total += size
            for line in filter(None, lines):
                self._event(line)
        if self.output.open:
            lines, size = self.output.read()
            total += size
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip("\r")
                if text.strip():
                    self._sink.write(encode("output", {"stream": "stderr", "text": text}))
        return total

    def drain(self, limit: int = 8 * 1024 * 1024) -> None:
        """Take what is left after the agent's end."""
        while limit > 0 and (taken := self.take()):
            limit -= taken

    def _event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind = event.pop("type")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.refused += 1
            return
        if kind == RESULT:
            self.result = event
            return
        if not isinstance(kind, str) or kind not in AGENT_TYPES:
            self.refused += 1
            return
        if kind == "turn" and isinstance(event.get("n"), int):
            self.turns = event["n"]
        if kind == "usage":
            self.usage = {name: value for name, value in event.items() if isinstance(value, int)}
        try:
            encoded = encode(kind, event)
        except ValueError:
            self.refused += 1
            return
        self._sink.write(encoded, essential=kind in ("error", "agent.started"))

    def close(self) -> None:
        """Close both pipes."""
        self.events.close()
        self.output.close()
