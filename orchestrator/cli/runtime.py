"""``school runtime``: Orca, where it is (R-102, R-103)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.rails.runtime import OrcaRuntime

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
runtime = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Orca, where it is: status, worktrees, schedule."
)
app.add_typer(runtime, name="runtime")

JSON = typer.Option(False, "--json", help="JSON on stdout.")
PROMPT = "Run `school tick --json` in this repository once, show its output, and do nothing else."


@runtime.command()
def status(as_json: bool = JSON) -> None:
    """Say whether Orca is here and runs; that it is not is normal."""
    from orchestrator.rails.runtime import find_orca

    command = find_orca()
    found: dict[str, Any] = {"command": list(command) if command else None, "running": False}
    if command:
        found["running"] = _orca().running()
    text = (
        "Orca is not here, which is normal"
        if not command
        else f"{' '.join(command)}: " + ("it runs" if found["running"] else "it does not run")
    )
    print(json.dumps(found) if as_json else text)


@runtime.command()
def worktrees(as_json: bool = JSON) -> None:
    """List Orca's worktrees. The school deletes none of them."""
    from dataclasses import asdict

    from orchestrator.cli.terminal import Terminal

    found = _orca().worktrees()
    if as_json:
        print(json.dumps([asdict(worktree) for worktree in found]))
        return
    rows: list[list[Any]] = [[worktree.name, worktree.branch, worktree.path] for worktree in found]
    Terminal(sys.stdout).table(rows, ["NAME", "BRANCH", "FOLDER"])


@runtime.command()
def schedule(
    repo: str = typer.Option(..., "--repo", help="Repository whose Orca workspace runs the tick."),
    trigger: str = typer.Option("*/15 * * * *", "--trigger", help="A cron expression, or hourly, daily, …"),
    provider: str = typer.Option("hermes", "--provider", help="The agent that Orca starts."),
    as_json: bool = JSON,
) -> None:
    """Let Orca's scheduler call `school tick`."""
    made = _orca().create_automation(
        "school tick", trigger=trigger, prompt=PROMPT, provider=provider, repo=Path(repo).resolve()
    )
    print(json.dumps({"automation": made}) if as_json else f"automation {made}")


def _orca() -> OrcaRuntime:
    from orchestrator.rails.runtime import OrcaRuntime, find_orca
    from orchestrator.settings import settings

    command = find_orca()
    if command is None:
        raise UsageError(
            "Orca is not here.",
            next_step="Without it a timer calls the tick; docs/runtime.md. ORCA_CLI_COMMAND names it.",
        )
    return OrcaRuntime(command, lock_dir=settings().home().ensure().leases)
