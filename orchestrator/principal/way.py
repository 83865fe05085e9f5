"""One call from a request to a report: opens the school, sweeps, checks the request, drives the bead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.principal.cancel import Cancellation
from orchestrator.principal.conductor import Conductor
from orchestrator.principal.prepare import prepare
from orchestrator.principal.recovery import Sweeper
from orchestrator.principal.school import open_school

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.principal.journal import Listener
    from orchestrator.principal.report import Report
    from orchestrator.principal.request import SpawnRequest


def sweep_home(say: Callable[[str], None]) -> list[str]:
    """End what dead principals left in this home; return what could not be removed yet, in words.

    Raises:
        SchoolError: the school can't be used.
    """
    with open_school(say) as school:
        return Sweeper(school, school.ledger).sweep().open


def drive(request: SpawnRequest, listener: Listener) -> Report:
    """Carry out a request; see ``prepare`` for what is refused before anything is made.

    Raises:
        SchoolError: the request was refused, or the school can't be used; nothing of the bead exists then.
    """
    with Cancellation().installed() as cancellation, open_school(listener.note) as school:
        for left in Sweeper(school, school.ledger).sweep().open:
            listener.note(f"left over, and not removed yet: {left}")
        prepared = prepare(request, school, listener.note)
        return Conductor(school, school.ledger, cancellation).drive(prepared, listener)
