"""``school personas``: which file each role's persona comes from, and why (R-51)."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import ConfigError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def personas(as_json: bool = typer.Option(False, "--json", help="JSON on stdout.")) -> None:
    """Show which file each role's persona comes from, and why."""
    from orchestrator.cli.terminal import Terminal, safe
    from orchestrator.home import home_root
    from orchestrator.personas import persona_uses

    uses = persona_uses(home_root())
    if as_json:
        print_json([asdict(use) for use in uses])
    else:
        terminal = Terminal(sys.stdout)
        rows: list[list[Any]] = [[use.name, use.role or "nobody", use.source, use.why] for use in uses]
        terminal.table(rows, ["PROFILE", "USED BY", "FROM", "WHY"])
        for use in uses:
            if use.unused or use.problems:
                terminal.line(f"\n{use.name}: {safe(use.path)}")
            if use.unused:
                terminal.line(f"  not used: {safe(use.unused)}")
            for problem in use.problems:
                terminal.line(f"  an agent may not load it: {safe(problem)}")
    bad = [use.name for use in uses if use.problems]
    if bad:
        raise ConfigError(
            f"Personas with problems: {', '.join(bad)}.", next_step="Correct their wording; what is wrong stands above."
        )
