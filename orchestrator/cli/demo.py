"""``school demo``: a sample repository with a failing test, and one task on it from start to end."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def demo(
    folder: Path | None = typer.Option(None, "--folder", help="Where to make the sample [default: in the home]."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Make a small sample repository and run one task on it, with agent light on the rehearsal model."""
    from orchestrator.cli.spawn import run
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.request import SpawnRequest
    from orchestrator.principal.sample import TASK, VERIFY, make_sample
    from orchestrator.settings import settings

    terminal = Terminal(sys.stderr)
    root = make_sample(folder or settings().home().ensure().school / "demo")
    terminal.line(f"sample repository: {root} (its test fails; the student has to find out why)")
    terminal.line(f"task: {TASK}")
    request = SpawnRequest(
        repo=str(root), task=TASK, agent="light", model="rehearsal", difficulty="easy", verify=VERIFY
    )
    code = run(request, as_json=as_json)
    _show_nothing_left(terminal)
    raise typer.Exit(code)


def _show_nothing_left(terminal: object) -> None:
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.status import traces

    assert isinstance(terminal, Terminal)  # noqa: S101 - lazily imported type
    left = traces()
    terminal.line()
    terminal.line("what is left of students in this home (looked for on the engine and the disk):")
    for name, found in left.items():
        terminal.line(f"  {name:<22} {', '.join(found) if found else 'none'}")
