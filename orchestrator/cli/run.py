"""``school run``: ready tasks of the tracker, several at once, with a live table."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.dispatch import Job

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    ready: bool = typer.Option(False, "--ready", help="Run until no task is ready."),
    rounds: int | None = typer.Option(
        None, "--rounds", help="Run so many rounds; a round is up to --max tasks, all taken to their end."
    ),
    most: int = typer.Option(2, "--max", help="Beads at once (SCHOOL_MAX_BEADS bounds all processes together)."),
    asynchronous: bool = typer.Option(
        True, "--async/--sync", help="Reviews by the teachers, or in each bead's own process."
    ),
    handoff_timeout: float | None = typer.Option(
        None, "--handoff-timeout", help="Seconds for the teachers to pick a bead up [default: HANDOFF_TIMEOUT]."
    ),
    resume: bool = typer.Option(False, "--resume", help="First take to its end what dead processes left, here."),
    repo: str = typer.Option("", "--repo", "-r", help="Repository of tasks that name none (bd's)."),
    agent: str = typer.Option("auto", help="light or hermes [auto: as for spawn]."),
    model: str | None = typer.Option(None, help="Alias at the gateway [default: SCHOOL_STUDENT_MODEL]."),
    verify: str | None = typer.Option(None, help="The check for all tasks [default: the repository's own]."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout, nothing else."),
) -> None:
    """Take ready tasks from the tracker, run several at once, and close each with its verdict as the reason.

    Ends with 0 when everything that was taken was accepted, or nothing was ready; with 1 otherwise.
    """
    from orchestrator.cli.live import Live
    from orchestrator.cli.terminal import Terminal
    from orchestrator.git.repository import open_repository
    from orchestrator.principal.desk import Defaults
    from orchestrator.principal.rounds import RunPlan, run_tasks
    from orchestrator.settings import settings

    if ready == (rounds is not None):
        raise UsageError("Say how long to run.", next_step="Use either --ready or --rounds N.")
    if repo:
        from pathlib import Path

        repo = str(open_repository(Path(repo)).root)
    defaults = Defaults(repo, "async" if asynchronous else "sync", agent, model, verify)
    plan = RunPlan(most, rounds, resume, handoff_timeout, defaults)
    terminal = Terminal(sys.stderr)
    jobs = run_tasks(plan, settings(), Live(terminal), Table(terminal).show)
    if as_json:
        print_json({"jobs": [job.to_json() for job in jobs]})
    elif not jobs:
        terminal.line("no task is ready (school submit puts one in; school tasks lists them)")
    raise typer.Exit(0 if all(job.outcome == "accepted" for job in jobs) else 1)


class Table:
    """The jobs as a table that is drawn over itself; where nobody watches, one line for each change."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._lines = 0
        self._drawn = 0.0
        self._said: dict[str, str] = {}

    def show(self, jobs: Sequence[Job]) -> None:
        """Show them as they are now."""
        if self._terminal.tty:
            self._draw(jobs)
            return
        for job in jobs:
            now = job.outcome or "started"
            if self._said.get(job.bead) != now:
                self._said[job.bead] = now
                self._terminal.line(self._line(job, now))

    @staticmethod
    def _line(job: Job, now: str) -> str:
        from orchestrator.cli.terminal import one_line

        return f"{job.bead}  {now}  {one_line(job.reason or job.title, limit=160)}".rstrip()

    def _draw(self, jobs: Sequence[Job]) -> None:
        from orchestrator.cli.live import TITLES

        ended = all(job.ended for job in jobs)
        if not jobs or (time.monotonic() - self._drawn < 0.5 and not ended):
            return
        self._drawn = time.monotonic()
        rows: list[list[Any]] = []
        for job in jobs[-40:]:
            seconds = (job.ended or time.time()) - job.started
            step = "" if job.outcome else TITLES.get(job.step, job.step)
            rows.append([job.bead, job.outcome or "running", step, f"{seconds:.0f} s", job.reason or job.title])
        stream = self._terminal.stream
        if self._lines:
            stream.write(f"\x1b[{self._lines}A\x1b[J")
        self._terminal.table(rows, ["BEAD", "STATE", "AT", "TIME", ""])
        self._lines = len(rows) + 1
