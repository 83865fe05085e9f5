"""Counts what a call used, from what upstream reports: JSON bodies and SSE events of the three wire formats."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.gate.routes import COUNT_TOKENS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from orchestrator.gate.grants import Grant

LINE_LIMIT = 4 << 20
"""Longest SSE line that is looked into; a longer one passes on and is not metered."""
_REHEARSAL = "rehearsal"
_PROMPT_NOTE, _COMPLETION_NOTE = "x-omniroute-tokens-in", "x-omniroute-tokens-out"


@dataclass(slots=True)
class Tally:
    """Tokens as upstream reported them; None is not reported."""

    prompt: int | None = None
    completion: int | None = None
    rehearsed: bool = False
    noted: bool = False

    def read(self, data: Any) -> None:
        """Take the usage and the model's name out of one JSON body or one SSE event."""
        if not isinstance(data, dict):
            return
        # responses events wrap the response, messages' first event wraps the message
        for holder in (data, data.get("response"), data.get("message")):
            if not isinstance(holder, dict):
                continue
            model = holder.get("model")
            if isinstance(model, str) and model.rsplit("/", 1)[-1].startswith(_REHEARSAL):
                self.rehearsed = True
            usage = holder.get("usage")
            if isinstance(usage, dict):
                self._usage(usage)

    def _usage(self, usage: Mapping[str, Any]) -> None:
        # Counts are running totals where an API repeats them, so the largest one stands. What the messages format
        # calls input leaves out what the cache served.
        prompt = _first(usage, "prompt_tokens", "input_tokens")
        if prompt is not None and "prompt_tokens" not in usage:
            prompt += (_first(usage, "cache_creation_input_tokens") or 0) + (
                _first(usage, "cache_read_input_tokens") or 0
            )
        completion = _first(usage, "completion_tokens", "output_tokens")
        if self.noted:
            return
        if prompt is not None:
            self.prompt = max(prompt, self.prompt or 0)
        if completion is not None:
            self.completion = max(completion, self.completion or 0)

    def note(self, notes: Mapping[str, str]) -> None:
        """Take what OmniRoute says beside an answer: the numbers of its own call log.

        In a stream they stand in comments at its end. They win over the events: where it translates between wire
        formats, the events' usage is its estimate or is left out.
        """
        prompt, completion = notes.get(_PROMPT_NOTE, ""), notes.get(_COMPLETION_NOTE, "")
        if prompt.isdecimal() and completion.isdecimal():
            self.prompt, self.completion, self.noted = int(prompt), int(completion), True


def _first(usage: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


class EventScanner:
    """Reads usage out of an SSE stream as its chunks pass; chunks may end anywhere."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._rest = b""
        self._skipping = False
        self._looked_at_model = False
        self._notes: dict[str, str] = {}

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes of the stream."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if self._skipping:  # the tail of a line that was too long
                self._skipping = False
                continue
            self._line(line)
        if len(self._rest) > LINE_LIMIT:
            self._rest, self._skipping = b"", True

    def close(self) -> None:
        """Look at a last line that had no newline."""
        if self._rest and not self._skipping:
            self._line(self._rest)
        self._rest = b""
        self._tally.note(self._notes)

    def _line(self, line: bytes) -> None:
        # Parsing every event would cost more than the proxying: only those that can tell something are.
        if line.startswith(b": x-omniroute-tokens-"):
            name, _, value = line[2:].decode(errors="replace").strip().partition("=")
            self._notes[name] = value
        if not line.startswith(b"data:"):
            return
        if b'"usage"' not in line and (self._looked_at_model or b'"model"' not in line):
            return
        try:
            data = json.loads(line[5:])
        except (ValueError, RecursionError):
            return
        self._looked_at_model = True
        self._tally.read(data)


@dataclass(eq=False, slots=True)
class Call:
    """One call on its way: what it reserved, and how it ended."""

    grant: Grant
    bead: str | None
    route: str
    model: str
    stream: bool
    reserved_tokens: int = 0
    reserved_cost: float = 0.0
    started: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    tally: Tally = field(default_factory=Tally)
    status: int = 0
    code: str = ""
    cost_usd: float | None = None
    scope: asyncio.Timeout | None = None
    abort_reason: str | None = None
    settled: bool = False

    def begin(self) -> None:
        """Take a place among the calls in flight; the call counts from now on."""
        self.grant.in_flight.add(self)
        if self.grant.day is not None:
            self.grant.day.in_flight.add(self)
        for counters in self.grant.counters(self.bead):
            counters.calls += 1

    def settle(self) -> None:
        """Count what was used, once, and give the reservation back."""
        if self.settled:
            return
        self.settled = True
        grant, tally = self.grant, self.tally
        grant.in_flight.discard(self)
        if grant.day is not None:
            grant.day.in_flight.discard(self)
        failed = bool(self.code) or not 200 <= self.status < 300
        reported = tally.prompt is not None or tally.completion is not None
        prompt, completion = tally.prompt or 0, tally.completion or 0
        price = grant.terms.prices.get(self.model)
        # What upstream refused with a status used nothing; what broke off, or was cut, used something unknown.
        broke_off = self.code not in ("", "upstream_unavailable")
        used = reported or (self.route != COUNT_TOKENS and (broke_off or self.status < 300))
        if reported and price is not None:
            self.cost_usd = price.cost(prompt, completion)
        for counters in grant.counters(self.bead):
            counters.failed += failed
            counters.prompt_tokens += prompt
            counters.completion_tokens += completion
            counters.unmetered += used and not reported
            counters.cost_unknown += used and self.cost_usd is None
            counters.cost_known_usd += self.cost_usd or 0.0
        if failed:
            grant.last_error = {"status": self.status or None, "code": self.code or "upstream_error"}
        elif self.model in grant.terms.rehearsal_models or tally.rehearsed:
            grant.rehearsal = True

    def abort(self, reason: str, now: float) -> None:
        """End the call at once; ``now`` is the loop's time."""
        self.abort_reason = reason
        if self.scope is not None:
            self.scope.reschedule(now)

    def log_entry(self) -> dict[str, Any]:
        """Return the call's line of the log."""
        return {
            "ts": round(self.started, 3),
            "grant": self.grant.name,
            "bead": self.bead,
            "route": self.route,
            "model": self.model,
            "status": self.status,
            "code": self.code or None,
            "prompt_tokens": self.tally.prompt,
            "completion_tokens": self.tally.completion,
            "cost_usd": self.cost_usd,
            "ms": round((time.monotonic() - self.began) * 1000, 1),
            "stream": self.stream,
            "reason": self.abort_reason,
        }
