"""What a task is, and what a task tracker can do (R-90)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from orchestrator import bookbag
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

MAX_TITLE = 300
LOWEST_PRIORITY = 4


class Status(StrEnum):
    """The life of a task (R-7)."""

    OPEN = "open"
    CLAIMED = "claimed"
    BLOCKED = "blocked"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be created.

    ``text`` is what the student reads; ``priority`` runs from 0 (first) to 4; ``repo`` is the repository's folder,
    empty where the tracker belongs to one repository. An empty role, domain or difficulty is left to the director.
    """

    text: str
    title: str = ""
    repo: str = ""
    priority: int = 2
    role: str = ""
    domain: str = ""
    difficulty: str = ""
    labels: tuple[str, ...] = ()
    id: str | None = None

    def check(self) -> Self:
        """Return the task when it can be created.

        Raises:
            UsageError: there is no text, or the priority is none.
            InvalidBeadError: the id can't be a bead's (R-6).
        """
        if not self.text.strip():
            raise UsageError("There is no task.", next_step='Give it as an argument: school submit --repo . "…"')
        if not 0 <= self.priority <= LOWEST_PRIORITY:
            raise UsageError(
                f"The priority is {self.priority}.", next_step=f"Give 0 (first) to {LOWEST_PRIORITY} (last)."
            )
        if self.id is not None:
            bookbag.check_bead(self.id)
        return self

    @property
    def headline(self) -> str:
        """The title, or the first line of the text."""
        return (self.title or self.text.strip().partition("\n")[0])[:MAX_TITLE]


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its tracker knows it. Times are ISO-8601, UTC; ``reason`` says why it was blocked or closed."""

    id: str
    title: str
    text: str
    status: Status
    priority: int = 2
    repo: str = ""
    role: str = ""
    domain: str = ""
    difficulty: str = ""
    labels: tuple[str, ...] = ()
    owner: str = ""
    reason: str = ""
    created: str = ""
    updated: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {**asdict(self), "status": str(self.status), "labels": list(self.labels)}


class TaskStore(Protocol):
    """A task tracker.

    Every method raises TrackerError when the tracker fails, and TaskNotFoundError for an id that it does not have.
    """

    name: str

    def create(self, task: NewTask) -> Task:
        """Create a task.

        Raises:
            UsageError: it can't be created as given, or its id is taken.
        """

    def show(self, task_id: str) -> Task:
        """Return a task."""

    def list(self, *, closed: bool = False, limit: int = 200) -> Sequence[Task]:
        """Return tasks, the next one to be done first; closed ones only when asked for."""

    def ready(self, *, limit: int = 100) -> Sequence[Task]:
        """Return what can be claimed, the next one first."""

    def claim(self, task_id: str, owner: str) -> Task | None:
        """Take a task, atomically; None when it is not open any more. A repeat by the same owner succeeds."""

    def claim_next(self, owner: str) -> Task | None:
        """Take the next ready task, atomically; None when there is none."""

    def block(self, task_id: str, reason: str) -> Task:
        """Set a task aside, with a reason; ``reopen`` brings it back."""

    def reopen(self, task_id: str, reason: str = "") -> Task:
        """Make a claimed, blocked or closed task open, without an owner."""

    def close(self, task_id: str, reason: str) -> Task:
        """Close a task: the verdict is the reason. Closing a closed one keeps the first reason."""

    def __enter__(self) -> Self:
        """Use the store in a block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""


def bead_of(task: Task) -> str:
    """Return the bead's id: the tracker's own where the grammar has it, slugged otherwise (R-6).

    Raises:
        InvalidBeadError: nothing of the id can be kept.
    """
    return task.id if bookbag.is_bead(task.id) else bookbag.slug(task.id)
