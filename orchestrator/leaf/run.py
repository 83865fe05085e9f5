"""Runs one created container to its end: listens before the start, streams the agent's events, keeps the limits.

The same code runs the student and the verification. It ends with the container gone, whatever happened.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import Exited, Gone, Lost, Pending, Running, State
from orchestrator.engine.retry import patiently
from orchestrator.leaf.quota import QuotaWatcher

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.engine.base import Engine, Removal, WaitResult, Watch

GRACE = 5.0
"""Seconds that the entry point has after its deadline before the host ends the container itself."""

ENGINE_PATIENCE = 90.0
"""Seconds for an engine that is away: one that is restarted or upgraded is away for less."""

OUTPUT_CAP = 4 << 20
"""Bytes of a command's output that are kept (the end of it)."""


@dataclass(slots=True)
class RunRecord:
    """What was seen of a run. Texts come from inside the container: untrusted."""

    result: WaitResult = field(default_factory=lambda: Lost("never started"))
    disk_exceeded: str = ""
    deadline_passed: bool = False
    last_message: str = ""
    finished: dict[str, Any] = field(default_factory=dict)  # the entry point's agent.finished
    turns: int = 0
    tool_calls: int = 0
    output: list[str] = field(default_factory=list)
    output_bytes: int = 0
    stderr: str = ""
    removal: Removal | None = None

    @property
    def exit_code(self) -> int | None:
        """The container's exit code when the engine told it."""
        return self.result.code if isinstance(self.result, Exited) else None

    def take(self, event: dict[str, Any]) -> None:
        """Fold one event in."""
        match event["type"]:
            case "turn":
                self.turns += 1
            case "tool.call":
                self.tool_calls += 1
            case "message":
                self.last_message = str(event.get("text", ""))
            case "agent.finished":
                self.finished = event
            case "output":
                text = str(event.get("text", ""))
                self.output.append(text)
                self.output_bytes += len(text)
                while self.output_bytes > OUTPUT_CAP and len(self.output) > 1:
                    self.output_bytes -= len(self.output.pop(0))
            case _:
                pass


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return an event from a line of the container's output, or None for anything else."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return None
    return event


def run_to_end(
    engine: Engine,
    container: str,
    *,
    deadline: float,
    starting: Callable[[], contextlib.AbstractContextManager[object]],
    on_event: Callable[[dict[str, Any]], None],
    writable: Sequence[Path],
    disk_limit: int,
    keep: bool = False,
    started: bool = False,
) -> RunRecord:
    """Start a created container, follow it to its end, and make sure that it is gone.

    Args:
        engine: Where it is.
        container: Its id.
        deadline: Epoch seconds; the entry point ends itself then, and the host ends it ``GRACE`` later.
        starting: Gives a context that is held while the engine starts it (in-flight starts are limited).
        on_event: Called from another thread with each event.
        writable: The host's folders that it can write, for the disk quota.
        disk_limit: Bytes that it may add there.
        keep: Leave the ended container for debugging.
        started: It runs already: a principal that died had started it. What it printed before is heard first.

    Raises:
        ContainerNotFoundError: it is not there (any more).
        EngineError: it could not be started.
    """
    record = RunRecord()
    watch = engine.watch(container)
    reader = threading.Thread(target=_read, args=(watch, record, on_event), name="events", daemon=True)

    def too_much(reason: str) -> None:
        record.disk_exceeded = reason
        engine.kill(container)

    quota = QuotaWatcher(writable, disk_limit, too_much)
    try:
        if not started:
            with starting():
                _start(engine, container)
        reader.start()
        quota.start()
        record.result = _wait(engine, watch, container, deadline)
        record.deadline_passed = time.time() >= deadline
        reader.join(timeout=10)
        record.stderr = watch.stderr_tail().decode("utf-8", "replace")
    finally:
        quota.stop()
        if not keep:
            record.removal = engine.remove(container)
        watch.close()
    return record


def removed(record: RunRecord) -> bool:
    """Return whether the container was looked for and is gone."""
    return isinstance(record.removal, Gone)


def _start(engine: Engine, container: str) -> None:
    """Start it; an engine that goes away meanwhile is asked again, and may have started it all the same."""
    for attempt in patiently(ENGINE_PATIENCE):
        with attempt:
            again = attempt.retry_state.attempt_number > 1
            if again and engine.inspect(container).state is not State.CREATED:
                return
            engine.start(container)


def _wait(engine: Engine, watch: Watch, container: str, deadline: float) -> WaitResult:
    """Wait for the end; end it from outside when the entry point did not keep its deadline."""
    result = watch.wait(timeout=max(deadline + GRACE - time.time(), 0.1))
    if isinstance(result, (Running, Pending)):
        engine.kill(container)
        result = watch.wait(timeout=30)
    return result


def _read(watch: Watch, record: RunRecord, on_event: Callable[[dict[str, Any]], None]) -> None:
    for line in watch.lines():
        event = parse_event(line)
        if event is not None:
            record.take(event)
            on_event(event)
