"""``school submit`` and ``school tasks``: the task tracker, whichever it is (R-90)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.rails.tasks import Task, TaskStore

app = typer.Typer(add_completion=False, rich_markup_mode=None)
tasks = typer.Typer(rich_markup_mode=None, help="Look at the tracker's tasks; close, block or reopen one.")
app.add_typer(tasks, name="tasks", invoke_without_command=True)

JSON = typer.Option(False, "--json", help="JSON on stdout.")
ID = typer.Argument(..., metavar="TASK", help="The task's id.")


@app.command()
def submit(
    task: str | None = typer.Argument(None, help="What is to be done; `-` or nothing reads it from stdin."),
    repo: str = typer.Option(..., "--repo", help="Repository to work on."),
    role: str = typer.Option("", "--role", help="coder, executor, searcher, reviewer, browser [default: by routing]."),
    domain: str = typer.Option("", "--domain", help="Field of the work [default: by routing]."),
    difficulty: str = typer.Option(
        "", "--difficulty", help="easy, medium, hard, diploma or blocker [default: by routing]."
    ),
    priority: int = typer.Option(2, "--priority", "-p", help="0 (first) to 4 (last)."),
    label: list[str] | None = typer.Option(None, "--label", help="A label; may be repeated."),
    task_id: str | None = typer.Option(None, "--id", help="The task's id [default: minted]."),
    as_json: bool = JSON,
) -> None:
    """Put a task into the tracker, to be run later."""
    from orchestrator.git.repository import open_repository
    from orchestrator.principal.request import SpawnRequest
    from orchestrator.rails.tasks import NewTask

    text = task if task not in {None, "-"} else sys.stdin.read()
    root = str(open_repository(Path(repo)).root)
    # the same words are refused here as at the start, when nobody may be looking
    SpawnRequest(root, text or "", role=role or "coder", difficulty=difficulty or "medium").check()
    new = NewTask(
        text or "",
        repo=root,
        priority=priority,
        role=role,
        domain=domain,
        difficulty=difficulty,
        labels=tuple(label or ()),
        id=task_id,
    )
    with _store() as store:
        made = store.create(new)
    if as_json:
        print_json(made.to_json())
    else:
        print(made.id)
        print(f"submitted to {store.name}: school run --ready takes it", file=sys.stderr)


@tasks.callback(invoke_without_command=True)
def tasks_(
    ctx: typer.Context,
    everything: bool = typer.Option(False, "--all", "-a", help="Closed ones too."),
    ready: bool = typer.Option(False, "--ready", help="Only what can be claimed now."),
    as_json: bool = JSON,
) -> None:
    """List the tracker's tasks, the next one to be done first."""
    if ctx.invoked_subcommand is not None:
        return
    with _store() as store:
        found: Sequence[Task] = store.ready() if ready else store.list(closed=everything)
    if as_json:
        print_json([task.to_json() for task in found])
        return
    from orchestrator.cli.terminal import Terminal

    terminal = Terminal(sys.stdout)
    if not found:
        terminal.line("no tasks: school submit --repo PATH TEXT makes one")
        return
    rows: list[list[Any]] = [[t.id, t.status, t.priority, t.owner, t.reason, t.title] for t in found]
    terminal.table(rows, ["TASK", "STATUS", "PRIORITY", "OWNER", "REASON", "TITLE"])


@tasks.command()
def show(task_id: str = ID, as_json: bool = JSON) -> None:
    """Show a task."""
    with _store() as store:
        task = store.show(task_id)
    if as_json:
        print_json(task.to_json())
        return
    from orchestrator.cli.terminal import Terminal, safe

    terminal = Terminal(sys.stdout)
    for name, value in task.to_json().items():
        if name != "text" and value not in ("", []):
            terminal.line(f"{name:<11} {safe(', '.join(value) if isinstance(value, list) else value, limit=500)}")
    terminal.line("\n" + safe(task.text, limit=20_000, lines=True))


@tasks.command()
def close(
    task_id: str = ID, reason: str = typer.Option(..., "--reason", help="Why it is done with."), as_json: bool = JSON
) -> None:
    """Close a task."""
    with _store() as store:
        _changed(store.close(task_id, reason), as_json=as_json)


@tasks.command()
def block(
    task_id: str = ID, reason: str = typer.Option(..., "--reason", help="What it waits for."), as_json: bool = JSON
) -> None:
    """Set a task aside; `reopen` brings it back."""
    with _store() as store:
        _changed(store.block(task_id, reason), as_json=as_json)


@tasks.command()
def reopen(
    task_id: str = ID, reason: str = typer.Option("", "--reason", help="Why, for the record."), as_json: bool = JSON
) -> None:
    """Make a claimed, blocked or closed task open again."""
    with _store() as store:
        _changed(store.reopen(task_id, reason), as_json=as_json)


def _changed(task: Task, *, as_json: bool) -> None:
    print(json.dumps(task.to_json()) if as_json else f"{task.id} is {task.status}")


def _store() -> TaskStore:
    from orchestrator.rails.tasks import open_tasks
    from orchestrator.settings import settings

    return open_tasks(settings().home().ensure(), settings())
