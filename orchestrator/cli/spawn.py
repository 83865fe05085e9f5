"""``school spawn``: one task, all the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.principal.request import SpawnRequest

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def spawn(
    task: str | None = typer.Argument(None, help="The task; or use --task-file, or stdin."),
    repo: Path = typer.Option(..., "--repo", "-r", help="A folder inside a git repository."),
    task_file: Path | None = typer.Option(None, "--task-file", help="Read the task from a file (- is stdin)."),
    role: str | None = typer.Option(
        None, help="coder, executor, searcher, reviewer or browser [default: the director decides; see school route]."
    ),
    domain: str | None = typer.Option(None, help="Domain of the task, one word [default: the director decides]."),
    difficulty: str | None = typer.Option(None, help="easy, medium, hard or diploma [default: the director decides]."),
    label: list[str] | None = typer.Option(None, "--label", help="A label for the director; may be repeated."),
    model: str | None = typer.Option(None, help="Alias at the gateway [default: SCHOOL_STUDENT_MODEL]."),
    agent: str = typer.Option(
        "auto", help="light, hermes or command [auto: hermes, or light while only rehearsal exists]."
    ),
    command: str = typer.Option("", help="For --agent command: the agent's command line, run by sh in /workspace."),
    verify: str | None = typer.Option(None, help="The repository's own check, run in a clean container on the result."),
    base: str | None = typer.Option(None, help="Commit, branch or tag to start from [default: the current commit]."),
    timeout: int | None = typer.Option(None, help="Seconds for the student [default: 900]."),
    max_cost: float | None = typer.Option(None, "--max-cost", help="USD for the student [default: 2.0]."),
    max_calls: int | None = typer.Option(None, "--max-calls", help="Model calls for the student [default: 100]."),
    max_tokens: int | None = typer.Option(None, "--max-tokens", help="Tokens for the student [default: 2000000]."),
    memory: str | None = typer.Option(None, help="Memory of the student [default: 2g]."),
    cpus: float | None = typer.Option(None, help="CPUs of the student [default: 2]."),
    image: str | None = typer.Option(None, help="Image of the student instead of the repository's own."),
    sync: bool = typer.Option(False, "--sync/--async", help="Review in this process instead of by the teachers."),
    detach: bool = typer.Option(False, "--detach", help="Return at once; follow it with: school logs -f BEAD."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout, nothing else."),
    keep: bool = typer.Option(False, "--keep", help="Keep worktree and container for debugging."),
    bead: str | None = typer.Option(None, help="Bead id minted elsewhere."),
) -> None:
    """Give a task on a repository to a student, and have the result judged by two teachers."""
    from orchestrator.principal.request import SpawnRequest

    request = SpawnRequest(
        repo=str(repo),
        task=_task(task, task_file),
        role=role or "coder",
        domain=domain or "general",
        difficulty=difficulty or "medium",
        model=model,
        agent=agent,
        command=command,
        verify=verify,
        base=base,
        timeout=timeout,
        max_cost=max_cost,
        max_calls=max_calls,
        max_tokens=max_tokens,
        memory=memory,
        cpus=cpus,
        image=image,
        review="sync" if sync else "async",
        keep=keep,
        bead=bead,
    )
    request.check()
    if role is None or domain is None or difficulty is None:
        request = _directed(request, role=role, domain=domain, difficulty=difficulty, labels=tuple(label or ()))
    if detach:
        from orchestrator.principal.detached import spawn_detached

        started = spawn_detached(request)
        if as_json:
            print_json({"bead": started, "outcome": None, "state": "started"})
        else:
            print(started)
            print(f"started; follow it with: school logs -f {started}", file=sys.stderr)
        return
    raise typer.Exit(run(request, as_json=as_json))


def _directed(
    request: SpawnRequest, *, role: str | None, domain: str | None, difficulty: str | None, labels: tuple[str, ...]
) -> SpawnRequest:
    """Let the director decide what was not given."""
    from orchestrator.principal.director import director_of, settle
    from orchestrator.principal.director_model import asker
    from orchestrator.principal.ledger import Ledger
    from orchestrator.settings import settings

    in_force = settings()
    home = in_force.home().ensure()
    ask = asker(in_force, lambda text: print(text, file=sys.stderr))
    with Ledger(home.ledger) as ledger:
        director = director_of(home, ledger, ask)
        return settle(request, director, role=role, domain=domain, difficulty=difficulty, labels=labels)


def run(request: SpawnRequest, *, as_json: bool) -> int:
    """Drive a request in this process and show it; return the exit code."""
    from orchestrator.cli.live import Live, summary
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.way import drive

    terminal = Terminal(sys.stderr)
    report = drive(request, Live(terminal))
    summary(terminal, report)
    if as_json:
        print_json(report.to_json())
    return report.exit_code


def _task(argument: str | None, file: Path | None) -> str:
    """Return the task from where it was given.

    Raises:
        UsageError: it was given twice, the file can't be read, or stdin is a terminal.
    """
    if argument is not None and file is not None:
        raise UsageError("The task was given twice.", next_step="Use the argument or --task-file, not both.")
    if argument is not None and argument != "-":
        return argument
    if file is not None and str(file) != "-":
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"The task file {file} can't be read: {error}.", next_step="Name a UTF-8 text file."
            ) from error
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("There is no task.", next_step='Give it as an argument: school spawn --repo . "…"')
    return sys.stdin.read()
