"""Driving a fix that a person asked for: here, or in a process of its own (R-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import CancelledError, SchoolError, UsageError
from orchestrator.principal.desk import task_lock
from orchestrator.principal.detached import spawn_detached
from orchestrator.principal.lease import Lease
from orchestrator.principal.way import drive
from orchestrator.principal.word import Words, fix_request

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.principal.journal import Listener
    from orchestrator.principal.report import Report


def drive_fix(home: Home, words: Words, bead: str, listener: Listener) -> Report:
    """Have a new student work on a bead whose fix was asked for, and see it to its end.

    Raises:
        UsageError: a tick starts it at this moment.
        SchoolError: it was refused; the bead waits again for what it waited for, unless the new one was opened.
    """
    request = fix_request(words.row(bead))
    lock = Lease.take(task_lock(home, str(request.bead)))
    if lock is None:
        raise UsageError(f"{request.bead} is being started already.", next_step=f"school logs -f {request.bead}")
    try:
        return drive(request, listener)
    except SchoolError as error:
        take_back(words, bead, error)
        raise
    finally:
        lock.release(forget=True)


def start_fix(words: Words, bead: str) -> str:
    """Start the same in a process of its own; return the new bead.

    Raises:
        SchoolError: as ``drive_fix``.
    """
    try:
        return spawn_detached(fix_request(words.row(bead)))
    except SchoolError as error:
        take_back(words, bead, error)
        raise


def take_back(words: Words, bead: str, error: SchoolError) -> None:
    """Take a refused fix back, unless its new bead exists, or a person only ended the command."""
    if not isinstance(error, CancelledError) and bead in {row["bead"] for row in words.pending_fixes()}:
        words.withdraw_fix(bead, error.message)
