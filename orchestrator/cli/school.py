"""The standing parts: up, down, clean."""

from __future__ import annotations

import sys

import typer

from orchestrator.cli.terminal import print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)
JSON = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.command()
def up(as_json: bool = JSON) -> None:
    """Bring the school up: engine, images, gateway, gate, teachers. A second time it does nothing."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.bring_up import bring_up
    from orchestrator.principal.way import sweep_home

    terminal = Terminal(sys.stderr)
    found = bring_up(terminal.line, confirm=_confirm if sys.stdin.isatty() and terminal.tty else None)
    found["notes"] += [f"left over, and not removed yet: {left}" for left in sweep_home(terminal.line)]
    if as_json:
        print_json(found)
        return
    terminal.line()
    rows = [[part["kind"], part["state"], part["detail"]] for part in found["parts"]]
    terminal.table(rows, ["PART", "STATE", "DETAIL"])
    terminal.line()
    for text in found["notes"]:
        terminal.line(f"{terminal.paint('note', 'yellow')} {text}")
    command = 'school spawn --repo PATH "what is to be done"'
    terminal.line(f"next: {terminal.paint(command, 'bold')}    or: school demo")


def _confirm(question: str) -> bool:
    return typer.confirm(question, default=True, err=True)


@app.command()
def down(force: bool = typer.Option(False, "--force", help="Even while beads run.")) -> None:
    """Stop this home's standing parts; refuses while beads run."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.take_down import take_down

    terminal = Terminal(sys.stderr)
    for name in take_down(force=force):
        terminal.line(f"stopped {name}")


@app.command()
def clean(force: bool = typer.Option(False, "--force", help="Even while beads run.")) -> None:
    """Remove this home's containers, network, volume and the school's images; ledger, bookbags and archive stay."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.take_down import clean_up

    terminal = Terminal(sys.stderr)
    for name in clean_up(force=force):
        terminal.line(f"removed {name}")
