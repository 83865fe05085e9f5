"""``school run``: the conductor's loop over ready tasks, until none is left or for so many rounds (R-14, R-49)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.errors import CancelledError, UsageError
from orchestrator.principal import desk
from orchestrator.principal.cancel import Cancellation
from orchestrator.principal.director import director_of
from orchestrator.principal.director_model import asker
from orchestrator.principal.dispatch import Dispatcher, Job
from orchestrator.principal.recovery import Sweeper
from orchestrator.principal.resume import Resumer
from orchestrator.principal.school import open_school
from orchestrator.rails.tasks import open_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.principal.journal import Listener
    from orchestrator.principal.school import School
    from orchestrator.settings import Settings


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is to be run. ``rounds`` None: until nothing is ready."""

    most: int
    rounds: int | None = None
    resume: bool = False
    handoff_timeout: float | None = None
    defaults: desk.Defaults = field(default_factory=desk.Defaults)

    def check(self) -> None:
        """Refuse numbers that make no sense.

        Raises:
            UsageError: names the option.
        """
        for option, value in (
            ("--max", self.most),
            ("--rounds", self.rounds),
            ("--handoff-timeout", self.handoff_timeout),
        ):
            if value is not None and not value > 0:
                raise UsageError(
                    f"{option} is {value}; it must be above 0.", next_step=f"Give {option} a positive number."
                )


def run_tasks(
    plan: RunPlan, in_force: Settings, listener: Listener, show: Callable[[Sequence[Job]], None]
) -> list[Job]:
    """Take ready tasks to their end; return what was taken.

    What dead processes left is dealt with first: adopted and finished here with ``resume``, else swept.

    Raises:
        SchoolError: the school or the tracker can't be used.
        CancelledError: a signal; every bead was cancelled and waited for.
    """
    plan.check()
    with open_school(listener.note) as school:
        home, ledger = school.home, school.ledger
        if plan.resume:
            _resume(school, listener)
        else:
            for left in Sweeper(school, ledger).sweep().open:
                listener.note(f"left over, and not removed yet: {left}")
        absent = school.absent_teachers()
        if absent and plan.defaults.review == "async":
            listener.note(
                f"{' and '.join(absent)} not healthy: reviews run synchronously, in each bead's own process (R-14)"
            )
        say = listener.note
        with Cancellation().installed(), open_tasks(home, in_force) as store:
            for settled in desk.reconcile(home, store, ledger):
                say(f"task {settled.task}: {settled.status} ({settled.reason})")
            timeout = plan.handoff_timeout
            dispatcher = Dispatcher(
                home,
                ledger,
                store,
                director_of(home, ledger, asker(in_force, say)),
                most=plan.most,
                defaults=plan.defaults,
                environment={"HANDOFF_TIMEOUT": str(timeout)} if timeout else None,
            )
            dispatcher.run(rounds=plan.rounds, show=show)
            for settled in desk.reconcile(home, store, ledger):  # of children that were killed
                say(f"task {settled.task}: {settled.status} ({settled.reason})")
            return dispatcher.jobs


def _resume(school: School, listener: Listener) -> None:
    with Cancellation().installed() as cancellation:  # one of its own: a bead's end shields it
        resumer = Resumer(school, school.ledger, cancellation)
        for row in reversed(school.ledger.beads(running=True)):
            if done := resumer.resume(str(row["bead"]), listener):
                listener.note(f"resumed {done.bead}: {done.outcome}")
            if cancellation.cancelled:
                raise CancelledError("Cancelled while resuming.")
