"""Driving a fix that a person asked for: here, or in a process of its own (R-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import CancelledError, SchoolError
from orchestrator.principal.detached import spawn_detached
from orchestrator.principal.way import drive
from orchestrator.principal.word import Words, fix_request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from orchestrator.principal.journal import Listener
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.report import Report


def drive_fix(words: Words, ledger: Ledger, bead: str, listener: Listener) -> Report:
    """Have a new student work on a bead whose fix was asked for, and see it to its end.

    Raises:
        SchoolError: it was refused; the bead waits again for what it waited for, unless the new one was opened.
    """
    row = _row(ledger, bead)
    try:
        return drive(fix_request(row), listener)
    except SchoolError as error:
        _refused(words, ledger, row, error)
        raise


def start_fix(words: Words, ledger: Ledger, bead: str) -> str:
    """Start the same in a process of its own; return the new bead.

    Raises:
        SchoolError: as ``drive_fix``.
    """
    row = _row(ledger, bead)
    try:
        return spawn_detached(fix_request(row))
    except SchoolError as error:
        _refused(words, ledger, row, error)
        raise


def _refused(words: Words, ledger: Ledger, row: Mapping[str, Any], error: SchoolError) -> None:
    if isinstance(error, CancelledError) or ledger.bead(str(row["data"]["word"]["next"])) is not None:
        return
    words.withdraw_fix(str(row["bead"]), error.message)


def _row(ledger: Ledger, bead: str) -> dict[str, Any]:
    row = ledger.bead(bead)
    assert row is not None  # noqa: S101 - a fix was asked for on it
    return row
