"""One call from a request to a report: opens the school, checks the request, drives the bead, handles signals."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.errors import CancelledError
from orchestrator.principal.conductor import Conductor
from orchestrator.principal.prepare import prepare
from orchestrator.principal.school import open_school

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.principal.journal import Listener
    from orchestrator.principal.report import Report
    from orchestrator.principal.request import SpawnRequest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def drive(request: SpawnRequest, listener: Listener) -> Report:
    """Carry out a request; see ``prepare`` for what is refused before anything is made.

    Raises:
        SchoolError: the request was refused, or the school can't be used; nothing of the bead exists then.
    """
    with cancellable(), open_school(listener.note) as school:
        prepared = prepare(request, school, listener.note)
        return Conductor(school, school.ledger).drive(prepared, listener)


@contextmanager
def cancellable() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a CancelledError; further ones don't disturb the removal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def cancel(number: int, _frame: Any) -> None:
        if not seen:
            seen.append(number)
            raise CancelledError(f"Cancelled by {signal.Signals(number).name}.")

    before = {number: signal.signal(number, cancel) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
