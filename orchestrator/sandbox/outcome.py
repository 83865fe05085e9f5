"""How a bead can end, and the number a shell sees for it (DESIGN, "Outcomes are typed")."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The typed end of a bead."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    TASK_FAILED = "task_failed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    BUDGET_EXHAUSTED = "budget_exhausted"
    GATEWAY_DENIED = "gateway_denied"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    LOST = "lost"
    NOT_REVIEWED = "not_reviewed"
    BLOCKED = "blocked"
    DISK_EXCEEDED = "disk_exceeded"
    CANCELLED = "cancelled"

    @property
    def exit_code(self) -> int:
        """The exit code of ``school spawn``."""
        return _EXIT_CODES[self]

    @property
    def students_fault(self) -> bool:
        """Whether it scores 0 for the student's profile; infrastructure and cancellation score nothing (R-41)."""
        return self in _STUDENT_ERRORS


_EXIT_CODES = {
    Outcome.ACCEPTED: 0,
    Outcome.REJECTED: 1,
    Outcome.TASK_FAILED: 3,
    Outcome.TIMED_OUT: 4,
    Outcome.OUT_OF_MEMORY: 5,
    Outcome.BUDGET_EXHAUSTED: 6,
    Outcome.GATEWAY_DENIED: 6,
    Outcome.SANDBOX_UNAVAILABLE: 7,
    Outcome.LOST: 7,
    Outcome.NOT_REVIEWED: 9,
    Outcome.BLOCKED: 10,
    Outcome.DISK_EXCEEDED: 11,
    Outcome.CANCELLED: 130,
}

CLEANUP_FAILED = 8
"""Exit code when the work was accepted and its removal failed."""

_STUDENT_ERRORS = frozenset(
    {
        Outcome.TASK_FAILED,
        Outcome.TIMED_OUT,
        Outcome.OUT_OF_MEMORY,
        Outcome.BUDGET_EXHAUSTED,
        Outcome.DISK_EXCEEDED,
    }
)
