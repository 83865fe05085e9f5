"""What an adopting principal can still find out about a student whose own principal died (R-49).

The engine is the truth for what exists. For a container that removed itself it is also the witness of how that ended:
it keeps its last events (Docker: 256) and tells them again. When they are gone nobody saw the end, and only the
student's own ``outcome.json`` is left: it may explain a failure and never proves a success.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
from typing import TYPE_CHECKING, Any

from orchestrator import layout
from orchestrator.engine.base import LABEL_BEAD, LABEL_HOME, LABEL_KIND, Exited, Kind, Lost, Pending, Rejected, Running
from orchestrator.errors import EngineError
from orchestrator.leaf.ending import Ending
from orchestrator.leaf.outbox import read_json
from orchestrator.leaf.run import RunRecord
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.engine.base import Container, Engine
    from orchestrator.home import Home

EVENTS_SECONDS = 2.0
"""Time for an engine to tell its kept events again; measured: some ms."""

CLOCK_SKEW = 5.0
"""Seconds that the engine's clock may be behind when events are asked for."""

RESULTS = {kind.__name__: kind for kind in (Exited, Lost, Rejected, Running, Pending)}

EXPLAINED = {
    "failed": Outcome.TASK_FAILED,
    "timed_out": Outcome.TIMED_OUT,
    "budget_exhausted": Outcome.BUDGET_EXHAUSTED,
    "model_denied": Outcome.GATEWAY_DENIED,
}
"""What a student may say against itself."""


def leaf_container(engine: Engine, home: Home, bead: str) -> Container | None:
    """Return a bead's student container, or None.

    Raises:
        EngineError: the engine can't be asked.
    """
    found = engine.list({LABEL_HOME: home.id, LABEL_BEAD: bead, LABEL_KIND: Kind.LEAF})
    return found[0] if found else None


def adopted_ending(engine: Engine, home: Home, bead: str, *, since: float) -> RunRecord | None:
    """Return how a student that is gone ended, as the engine saw it; None when it does not know any more.

    Args:
        engine: Where it ran.
        home: Whose it was.
        bead: Its bead.
        since: Epoch seconds before which nothing of it happened.
    """
    labels = {LABEL_HOME: home.id, LABEL_BEAD: bead, LABEL_KIND: Kind.LEAF}
    heard: queue.Queue[tuple[str, int] | None] = queue.Queue()

    def listen() -> None:
        try:
            for _, action, attributes in engine.events(labels, since=since - CLOCK_SKEW):
                heard.put((action, int(attributes.get("exitCode", -1))))
        except EngineError:
            heard.put(None)

    # the stream of events has no end of its own; closing the engine ends the thread
    threading.Thread(target=listen, name="past-events", daemon=True).start()
    oom, code = False, None
    while True:
        try:
            event = heard.get(timeout=EVENTS_SECONDS)
        except queue.Empty:
            break
        if event is None or event[0] == "destroy":
            break
        if event[0] == "oom":
            oom = True
        if event[0] == "die":
            code = event[1]
    return None if code is None else RunRecord(Exited(code, oom=oom))


def record_to_json(record: RunRecord) -> dict[str, Any]:
    """Return what was seen of a run, for the ledger: an adopting principal judges by it."""
    return {
        "result": [type(record.result).__name__, dataclasses.asdict(record.result)],
        "disk_exceeded": record.disk_exceeded,
        "deadline_passed": record.deadline_passed,
        "last_message": record.last_message,
        "finished": record.finished,
    }


def record_from_json(data: Mapping[str, Any]) -> RunRecord:
    """Return what ``record_to_json`` wrote."""
    name, fields = data["result"]
    return RunRecord(**{**data, "result": RESULTS[name](**fields)})


def unseen_end(outbox: Path) -> Ending:
    """Return the ending of a student whose end nobody saw."""
    said = read_json(outbox, layout.OUTCOME_FILE) or {}
    outcome = EXPLAINED.get(str(said.get("status")))
    if outcome is None:
        return Ending(Outcome.LOST, "its end was not seen by anybody; what it had done is kept", None)
    return Ending(outcome, f"its end was not seen; it says itself: {str(said.get('reason') or '')[:300]}", None)
