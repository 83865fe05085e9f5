"""Ready tasks, several at once: each bead has a process of its own, this one starts and watches them (R-27, R-90).

A child drives its bead, settles its task and ends; so nothing is lost when the watcher dies, and what a child does to
itself (signals, memory) is no other bead's matter. Ctrl-C here asks every child to cancel, and waits for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import BlockedError, SchoolError, UsageError
from orchestrator.principal import desk
from orchestrator.principal.journal import log_path
from orchestrator.principal.word import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.home import Home
    from orchestrator.principal.director import Director
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.request import SpawnRequest
    from orchestrator.rails.tasks import Task, TaskStore

LOOK_SECONDS = 0.2


@dataclass(slots=True)
class Job:
    """One bead that a child drives, or drove. ``step`` is its latest step; times are epoch seconds."""

    request: SpawnRequest
    title: str
    process: subprocess.Popen[bytes] | None = None
    started: float = field(default_factory=time.time)
    ended: float | None = None
    step: str = "starting"
    outcome: str = ""
    reason: str = ""
    _offset: int = 0

    @property
    def bead(self) -> str:
        """The bead's id."""
        return str(self.request.bead)

    def look(self, home: Home) -> None:
        """Take the latest step from the bead's log."""
        with contextlib.suppress(OSError), log_path(home, self.bead).open("rb") as file:
            file.seek(self._offset)
            data = file.read(1 << 20)
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if entry.get("kind") == "step" and "." not in entry["name"]:
                        self.step = entry["name"]

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "bead": self.bead,
            "task": self.request.task_id,
            "title": self.title,
            "outcome": self.outcome,
            "reason": self.reason,
            "seconds": round((self.ended or time.time()) - self.started, 1),
        }


def start_child(
    home: Home, request: SpawnRequest, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that drives this request, in a session of its own; it outlives this one."""
    errors = log_path(home, str(request.bead)).with_suffix(".err")
    errors.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with errors.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.principal.detached"],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    assert child.stdin is not None  # noqa: S101 - a pipe was asked for
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(json.dumps(request.to_json()).encode())
    return child


class Dispatcher:
    """Takes ready tasks of a tracker and keeps at most ``most`` of them running."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        store: TaskStore,
        director: Director,
        *,
        most: int,
        defaults: desk.Defaults,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home
        self._ledger = ledger
        self._store = store
        self._director = director
        self._most = most
        self._defaults = defaults
        self._environment = environment
        self._owner = desk.owner_of(home)
        self.jobs: list[Job] = []
        self._taken: set[str] = set()

    @property
    def running(self) -> list[Job]:
        """The jobs whose child lives."""
        return [job for job in self.jobs if job.process is not None and job.ended is None]

    def start_one(self) -> bool:
        """Claim the next ready task and start it; return False when there is none that this run has not had.

        A task that can't be started is set aside with its reason, and shows among the jobs.

        Raises:
            RailError: the tracker failed.
            LedgerError: the ledger can't be read.
        """
        task = self._claim()
        if task is None:
            return False
        self._taken.add(task.id)
        try:
            request = desk.request_of(task, self._ledger, self._director, self._defaults)
        except (UsageError, BlockedError) as error:
            settled = desk.block(self._store, task.id, desk.refusal(error))
            self.jobs.append(_refused(task, self._defaults, settled.reason, blocked=isinstance(error, BlockedError)))
            return True
        self.jobs.append(Job(request, task.title, start_child(self._home, request, self._environment)))
        return True

    def fill(self, *, limit: int | None = None) -> int:
        """Start tasks up to the limit of running ones; return how many were taken."""
        taken = 0
        while len(self.running) < self._most and (limit is None or taken < limit) and self.start_one():
            taken += 1
        return taken

    def look(self) -> None:
        """Collect children that ended."""
        for job in self.running:
            job.look(self._home)
            assert job.process is not None  # noqa: S101 - it runs
            if job.process.poll() is not None:
                self._collect(job)

    def run(self, *, rounds: int | None, show: Callable[[Sequence[Job]], None]) -> None:
        """Run until nothing is ready, or for so many rounds; a round is up to ``most`` tasks, all taken to their end.

        Raises:
            RailError: the tracker failed; what runs was waited for.
        """
        try:
            if rounds is None:
                self._until_empty(show)
            else:
                for _ in range(rounds):
                    if not self.fill(limit=self._most):
                        break
                    self._wait(show)
        except BaseException:  # Ctrl-C above all: nobody's student is left running by accident
            self.stop(show)
            raise

    def stop(self, show: Callable[[Sequence[Job]], None]) -> None:
        """Ask every child to cancel its bead, and wait for them."""
        for job in self.running:
            assert job.process is not None  # noqa: S101 - it runs
            job.process.terminate()
        self._wait(show)

    def _until_empty(self, show: Callable[[Sequence[Job]], None]) -> None:
        while True:
            self.fill()
            self.look()
            show(self.jobs)
            if not self.running:
                if not self.fill():
                    return
                continue
            time.sleep(LOOK_SECONDS)

    def _wait(self, show: Callable[[Sequence[Job]], None]) -> None:
        while self.running:
            self.look()
            show(self.jobs)
            time.sleep(LOOK_SECONDS)
        show(self.jobs)

    def _claim(self) -> Task | None:
        """Claim a task that this run has not had: one that came back goes to a later run."""
        if not self._taken:
            return self._store.claim_next(self._owner)
        for task in self._store.ready(limit=200):
            if task.id not in self._taken and (claimed := self._store.claim(task.id, self._owner)) is not None:
                return claimed
        return None

    def _collect(self, job: Job) -> None:
        assert job.process is not None  # noqa: S101 - it ran
        job.ended = time.time()
        row = self._ledger.bead(job.bead)
        if row is not None and row["outcome"]:
            job.outcome, job.reason = str(row["outcome"]), str(row["data"].get("reason") or "")
            return
        with contextlib.suppress(OSError):
            job.reason = log_path(self._home, job.bead).with_suffix(".err").read_text(errors="replace").strip()[-600:]
        job.outcome = "refused" if row is None else "lost"
        if row is not None:
            job.reason = "its process was killed; the janitor goes on with it"


def _refused(task: Task, defaults: desk.Defaults, reason: str, *, blocked: bool) -> Job:
    from orchestrator.principal.request import SpawnRequest  # noqa: PLC0415 - for this rare case

    request = SpawnRequest(repo=task.repo or defaults.repo, task=task.text, bead=task.id, task_id=task.id)
    return Job(request, task.title, ended=time.time(), outcome="blocked" if blocked else "refused", reason=reason)


def settle_end(home: Home, request: SpawnRequest, error: SchoolError | None = None) -> None:
    """Tell whoever asked for a bead how it ended, or why there is none; for the process that drove it.

    Raises:
        RailError: the tracker failed.
        LedgerError: the ledger can't be read or written.
    """
    fixes = str((request.context.get("fix") or {}).get("of") or "")
    if not request.task_id and not (fixes and error):
        return
    from orchestrator.principal.ledger import Ledger  # noqa: PLC0415 - only for these
    from orchestrator.rails.tasks import open_tasks  # noqa: PLC0415
    from orchestrator.settings import settings  # noqa: PLC0415

    refused = isinstance(error, (UsageError, BlockedError))
    with Ledger(home.ledger) as ledger:
        row = ledger.bead(str(request.bead))
        if fixes and refused and row is None and error is not None:
            Words(home, ledger, fix_rounds=0).withdraw_fix(fixes, error.message)
        if not request.task_id:
            return
        with open_tasks(home, settings()) as store:
            if row is not None:
                if row["status"] == "ended":
                    desk.settle_task(store, ledger, row)
            elif isinstance(error, (UsageError, BlockedError)):
                desk.block(store, request.task_id, desk.refusal(error))
            elif error is not None:  # the school could not be used: a later run may find it mended
                store.reopen(request.task_id, error.message)
