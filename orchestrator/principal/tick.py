"""``school tick``: one round of everything that is due, then it exits; a scheduler calls it again (R-102).

In this order: what dead processes left, tasks whose bead has ended, mail, fixes that were asked for, ready tasks,
staff. Beads are started in processes of their own and not waited for. One kernel lock lets one tick run at a time; each
step is done on its own, so that one that fails (mail is down) does not keep the others from being done.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SchoolError
from orchestrator.principal import desk
from orchestrator.principal.cancel import Cancellation
from orchestrator.principal.director import director_of
from orchestrator.principal.director_model import asker
from orchestrator.principal.dispatch import Dispatcher, start_child
from orchestrator.principal.journal import Quiet
from orchestrator.principal.lease import Lease, bead_lease_path, held
from orchestrator.principal.mailing import mail_round
from orchestrator.principal.recovery import Sweeper
from orchestrator.principal.resume import Resumer
from orchestrator.principal.school import open_school
from orchestrator.principal.word import Words, fix_request
from orchestrator.rails.tasks import open_tasks
from orchestrator.staff import StaffContext, load_plugins, run_plugin
from orchestrator.staff.records import Records

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.school import School
    from orchestrator.settings import Settings

HOUR = 3600.0


@dataclass(slots=True)
class Ticked:
    """What one round did, and what went wrong in it."""

    recovered: list[str] = field(default_factory=list)
    settled: list[dict[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    fixes: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    staff: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return asdict(self)


def tick(in_force: Settings, say: Callable[[str], None], *, wait: bool = False) -> Ticked | None:
    """Do one round; None when another one is under way in this home.

    Args:
        in_force: The settings.
        say: Where progress goes.
        wait: Stay until the beads that were started have ended: for a scheduler that ends what it leaves (CI).

    Raises:
        SchoolError: the school can't be opened at all.
    """
    home = in_force.home().ensure()
    lease = Lease.take(home.leases / "tick.lock")
    if lease is None:
        return None
    try:
        with open_school(say) as school:
            round_ = _Round(school, in_force, say)
            round_.run()
    finally:
        lease.release()
    if wait:
        for child in round_.children:
            child.wait()
        with open_school(say) as school:
            _Round(school, in_force, say, round_.done).step("tasks", _Round.tasks)
    return round_.done


class _Round:
    """The steps of one round."""

    def __init__(
        self, school: School, in_force: Settings, say: Callable[[str], None], done: Ticked | None = None
    ) -> None:
        self._school = school
        self._settings = in_force
        self._say = say
        self.done = done or Ticked()
        self.children: list[subprocess.Popen[bytes]] = []

    @property
    def _home(self) -> Home:
        return self._school.home

    @property
    def _ledger(self) -> Ledger:
        return self._school.ledger

    def run(self) -> None:
        """Do every step."""
        for name, step in (
            ("recovery", _Round.recovery),
            ("tasks", _Round.tasks),
            ("mail", _Round.mail),
            ("fixes", _Round.fixes),
            ("ready tasks", _Round.ready),
            ("staff", _Round.staff),
        ):
            self.step(name, step)

    def step(self, name: str, step: Callable[[_Round], None]) -> None:
        """Do one step; what goes wrong in it is kept, and the next one is done."""
        try:
            step(self)
        except SchoolError as error:
            if error.exit_code == 130:  # somebody ends the tick
                raise
            text = f"{name}: {error.message} {error.next_step}".strip()
            self.done.problems.append(text)
            self._say(text)

    def recovery(self) -> None:
        """Finish what dead processes left: by the janitor where there is one, here otherwise; remove orphans."""
        if not self._settings.janitor:
            with Cancellation().installed() as cancellation:
                resumer = Resumer(self._school, self._ledger, cancellation)
                for row in reversed(self._ledger.beads(running=True)):
                    if resumed := resumer.resume(str(row["bead"]), Quiet()):
                        self.done.recovered.append(f"{resumed.bead}: {resumed.outcome}")
        swept = Sweeper(self._school, self._ledger).sweep()
        self.done.recovered += [*swept.ended, *swept.orphans]
        self.done.problems += [f"recovery: still there: {left}" for left in swept.open]

    def tasks(self) -> None:
        """Settle tasks whose bead has ended without anybody to say so."""
        with open_tasks(self._home, self._settings) as store:
            self.done.settled += [asdict(settled) for settled in desk.reconcile(self._home, store, self._ledger)]

    def mail(self) -> None:
        """Tell of verdicts, and take answers."""
        mailed = mail_round(self._home, self._ledger, self._settings)
        if mailed is not None:
            self.done.notices += mailed.sent
            self.done.answers += [asdict(handled) for handled in mailed.handled]
            self.done.problems += [f"mail: {text}" for text in mailed.problems]

    def fixes(self) -> None:
        """Start new students for fixes that were asked for and that nobody drives."""
        words = Words(self._home, self._ledger, fix_rounds=self._settings.fix_rounds)
        for row in words.pending_fixes()[: self._free()]:
            request = fix_request(row)
            if not held(desk.task_lock(self._home, str(request.bead))):
                self.children.append(start_child(self._home, request))
                self.done.fixes.append(str(request.bead))

    def ready(self) -> None:
        """Start ready tasks, as many as there is room for."""
        room = self._free()
        with open_tasks(self._home, self._settings) as store:
            director = director_of(self._home, self._ledger, asker(self._settings, self._say))
            dispatcher = Dispatcher(self._home, self._ledger, store, director, most=room, defaults=desk.Defaults())
            dispatcher.fill(limit=room)
        for job in dispatcher.jobs:
            if job.process is not None:
                self.children.append(job.process)
                self.done.started.append(job.bead)
            else:
                self.done.refused.append({"task": job.request.task_id, "reason": job.reason})

    def staff(self) -> None:
        """Run the plugins whose last run is long enough ago."""
        now, settings = time.time(), self._settings
        records = Records(self._home, self._ledger)
        ctx = StaffContext(now, archive_days=settings.archive_days, max_session_cycles=settings.max_session_cycles)
        for name, (plugin, trust) in load_plugins(settings.staff_plugins).items():
            if now - self._last_run(name) >= settings.staff_hours * HOUR:
                ran = run_plugin(plugin, records, ctx, granted=trust)
                self.done.staff.append({"plugin": name, "status": ran.status, "reason": ran.reason})

    def _last_run(self, plugin: str) -> float:
        with self._ledger.transaction() as db:
            row = db.execute(
                "SELECT max(at) AS at FROM events WHERE kind='staff.run' AND json_extract(data, '$.plugin')=?",
                (plugin,),
            ).fetchone()
        return float(row["at"] or 0.0)

    def _free(self) -> int:
        """Return how many more beads may be started in this round."""
        leases = self._home.leases
        driven = sum(held(bead_lease_path(leases, row["bead"])) for row in self._ledger.beads(running=True))
        room = self._settings.max_beads - driven
        return max(0, min(room, self._settings.tick_tasks - len(self.children)))
