"""The principal's journal of one bead: ledger for recovery, a log file for readers, a listener for who watches.

``step`` writes the intent, runs the effect, and notes the end with its time; see ``leaf.journal`` for the protocol.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import LedgerError
from orchestrator.faults import fault_point

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger

LOG_CAP = 32 << 20
"""Bytes of a bead's log file; an agent that floods is cut there, said in the log."""


class Listener(Protocol):
    """Who watches a bead live. Called from several threads, one at a time."""

    def step_started(self, name: str) -> None:
        """A step began."""
        ...

    def step_ended(self, name: str, milliseconds: float, *, ok: bool) -> None:
        """A step ended."""
        ...

    def agent_event(self, event: dict[str, Any]) -> None:
        """The agent did something; texts are untrusted."""
        ...

    def note(self, text: str) -> None:
        """Something worth knowing."""
        ...


class Quiet:
    """A listener nobody looks at: the bead's log has it all."""

    def step_started(self, name: str) -> None:
        """Nothing."""

    def step_ended(self, name: str, milliseconds: float, *, ok: bool) -> None:
        """Nothing."""

    def agent_event(self, event: dict[str, Any]) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


def log_path(home: Home, bead: str) -> Path:
    """Return the file that ``school logs`` reads."""
    return home.logs / "beads" / f"{bead}.jsonl"


class BeadJournal:
    """The journal of one bead. Thread-safe.

    A terminal that was closed or a full disk under the log must not end a bead, least of all its removal: what
    only people read (listener, log file) may fail; the ledger may not, but for a step that removes.
    """

    def __init__(self, home: Home, ledger: Ledger, bead: str, listener: Listener) -> None:
        self._ledger = ledger
        self._bead = bead
        self._listener = listener
        self._lock = threading.Lock()
        self.timings: dict[str, float] = {}  # step -> milliseconds
        self.notes: list[str] = []
        path = log_path(home, bead)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        path.chmod(0o600)
        self._written = self._file.tell()

    def close(self) -> None:
        """Close the log file."""
        with contextlib.suppress(OSError):  # the rest of a full disk's buffer
            self._file.close()

    @contextlib.contextmanager
    def step(self, name: str, /, *, removal: bool = False, **data: Any) -> Iterator[None]:
        """Note the intent, run the block, note its end.

        Args:
            name: The step.
            removal: It only takes away: it is done also when the ledger can't be written.
            **data: What the step is about.

        Raises:
            LedgerError: the intent or the end can't be noted.
        """
        self._note_step(removal, "intent", step=name, **data)
        fault_point(f"{name}:intent")
        self._log("step", name=name, state="started")
        self._tell("step_started", name)
        started = time.perf_counter()
        ok = False
        try:
            yield
            ok = True
            fault_point(name)
        finally:
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            self.timings[name] = round(self.timings.get(name, 0.0) + milliseconds, 1)
            self._note_step(removal, "done" if ok else "failed", step=name, ms=milliseconds)
            self._log("step", name=name, state="done" if ok else "failed", ms=milliseconds)
            self._tell("step_ended", name, milliseconds, ok=ok)

    def scoped(self, prefix: str) -> ScopedJournal:
        """Return a journal whose steps carry a prefix: those of another container of the same bead."""
        return ScopedJournal(self, prefix)

    def agent_event(self, event: dict[str, Any]) -> None:
        """Log an event of the agent and show it."""
        self._log("agent", event=event)
        self._tell("agent_event", event)

    def note(self, text: str) -> None:
        """Keep a note, log it and show it."""
        self.notes.append(text)
        self._log("note", text=text)
        self._tell("note", text)

    def end(self, outcome: str, exit_code: int, report: dict[str, Any]) -> None:
        """Write the last line: readers that follow stop there."""
        self._written = min(self._written, LOG_CAP)  # the end is always written
        self._log("end", outcome=outcome, exit_code=exit_code, report=report, force=True)

    def _note_step(self, removal: bool, kind: str, /, **data: Any) -> None:
        with contextlib.suppress(LedgerError) if removal else contextlib.nullcontext():
            self._ledger.event(self._bead, kind, **data)

    def _tell(self, method: str, /, *values: Any, **named: Any) -> None:
        with self._lock:
            try:
                getattr(self._listener, method)(*values, **named)
            except (OSError, ValueError):  # its stream is gone (EIO of a closed terminal, a closed file)
                self._listener = Quiet()

    def _log(self, kind: str, *, force: bool = False, **data: Any) -> None:
        line = json.dumps({"at": round(time.time(), 3), "kind": kind, **data}, ensure_ascii=True, default=str) + "\n"
        with self._lock:
            if self._file.closed:
                return
            if self._written + len(line) > LOG_CAP and not force:
                if self._written > LOG_CAP:
                    return
                line = json.dumps({"at": time.time(), "kind": "note", "text": "the log is cut here"}) + "\n"
                self._written = LOG_CAP + 1
            with contextlib.suppress(OSError):
                self._file.write(line)
                self._file.flush()
            self._written += len(line)


class ScopedJournal:
    """A bead's journal for another of its containers: the verification."""

    def __init__(self, journal: BeadJournal, prefix: str) -> None:
        self._journal = journal
        self._prefix = prefix

    def step(self, name: str, /, *, removal: bool = False, **data: Any) -> contextlib.AbstractContextManager[None]:
        """Note a step under the prefix."""
        return self._journal.step(f"{self._prefix}.{name}", removal=removal, **data)

    def agent_event(self, event: dict[str, Any]) -> None:
        """Pass it on."""
        self._journal.agent_event(event)

    def note(self, text: str) -> None:
        """Pass it on."""
        self._journal.note(text)
