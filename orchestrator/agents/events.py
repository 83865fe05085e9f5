"""The agent's side of the event pipe: one JSON object a line, the same for all three agents.

PID 1 adds version and time, and refuses what is not an agent's to say (see ``intake``).
"""

from __future__ import annotations

import _thread
import json
import os

from orchestrator.agents.sink import MAX_PREVIEW, MAX_TEXT, clip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_FINAL = 256 * 1024  # characters of the final text that outcome.json keeps


class Emitter:
    """Writes events to the pipe that PID 1 reads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = _thread.allocate_lock()  # Hermes calls back from several threads; ``threading`` is slow to load
        self.usage_totals = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}
        self.finished = False

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        data = json.dumps({"type": kind, **fields}, default=str).encode("ascii") + b"\n"
        view = memoryview(data)
        with self._lock:
            while view:
                view = view[os.write(self._descriptor, view) :]

    def started(self, agent: str, version: str, model: str) -> None:
        """The agent runs."""
        self._write("agent.started", {"agent": agent, "version": version, "model": model})

    def turn(self, number: int) -> None:
        """A model call begins; counted from 1."""
        self._write("turn", {"n": number})

    def tool_call(self, call_id: str, name: str, preview: str) -> None:
        """The model asked for a tool."""
        self._write("tool.call", {"id": call_id, "name": name, "preview": clip(preview, MAX_PREVIEW)})

    def tool_result(self, call_id: str, name: str, *, ok: bool, ms: int, preview: str) -> None:
        """A tool has answered."""
        fields = {"id": call_id, "name": name, "ok": ok, "ms": ms, "preview": clip(preview, MAX_PREVIEW)}
        self._write("tool.result", fields)

    def message(self, text: str) -> None:
        """The model said something to people."""
        self._write("message", {"text": clip(text, MAX_TEXT)})

    def usage(self, *, calls: int, prompt_tokens: int, completion_tokens: int) -> None:
        """Add to the totals and report them."""
        self.usage_totals["calls"] += calls
        self.usage_totals["prompt_tokens"] += prompt_tokens
        self.usage_totals["completion_tokens"] += completion_tokens
        self._write("usage", dict(self.usage_totals))

    def output(self, stream: str, text: str) -> None:
        """A line that a command printed."""
        self._write("output", {"stream": stream, "text": clip(text, MAX_TEXT)})

    def warning(self, text: str) -> None:
        """Something went wrong and the agent goes on."""
        self._write("warning", {"text": clip(text, MAX_TEXT)})

    def error(self, text: str) -> None:
        """Something went wrong for good."""
        self._write("error", {"text": clip(text, MAX_TEXT)})

    def finish(self, status: str, reason: str, output: str = "", *, command_exit_code: int | None = None) -> None:
        """The agent's last word; only the first call counts.

        Args:
            status: One of ``outcome.EXIT_CODES``.
            reason: Why, for people; may be empty when completed.
            output: The final text.
            command_exit_code: Of the command that agent ``command`` ran; 128 + n when signal n ended it.
        """
        if not self.finished:
            self.finished = True
            os.write(self._descriptor, b"\n")  # a signal may have cut the line before
            result = {"status": status, "reason": reason, "output": clip(output, MAX_FINAL)}
            code = {} if command_exit_code is None else {"command_exit_code": command_exit_code}
            self._write("result", {**result, **code})
