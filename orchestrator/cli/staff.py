"""``school staff``: the plugins that tend the school's own records (R-62, R-63)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import SchoolError, UsageError

if TYPE_CHECKING:
    from orchestrator.staff import StaffRun

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
staff = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Plugins that tend the school's own records.")
app.add_typer(staff, name="staff")

JSON = typer.Option(False, "--json", help="JSON on stdout.")


@staff.command("list")
def list_(as_json: bool = JSON) -> None:
    """List the plugins that may run, and what each is trusted with."""
    from orchestrator.settings import settings
    from orchestrator.staff import LIMITS, load_plugins

    rows = []
    for name, (plugin, trust) in load_plugins(settings().staff_plugins).items():
        limits = LIMITS[trust]
        about = (type(plugin).__module__, plugin.health_check())
        rows.append(
            {
                "name": name,
                "trust": str(trust),
                "reads": limits.reads,
                "writes": limits.writes,
                "scores": limits.scores,
                "from": about[0],
                "problem": about[1],
            }
        )
    if as_json:
        print_json(rows)
        return
    from orchestrator.cli.terminal import Terminal

    cells: list[list[Any]] = [
        [
            row["name"],
            row["trust"],
            "no limit" if row["reads"] is None else f"{row['reads']} reads, {row['writes']} writes",
            "yes" if row["scores"] else "no",
            row["problem"] or "well",
        ]
        for row in rows
    ]
    Terminal(sys.stdout).table(cells, ["PLUGIN", "TRUST", "LIMITS", "SCORES", "HEALTH"])


@staff.command()
def run(
    name: str = typer.Argument(..., help="The plugin, or `all`."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what it would do, and do nothing."),
    as_json: bool = JSON,
) -> None:
    """Run a plugin once."""
    from orchestrator.principal.ledger import Ledger
    from orchestrator.settings import settings
    from orchestrator.staff import StaffContext, load_plugins, run_plugin
    from orchestrator.staff.records import Records

    chosen = settings()
    plugins = load_plugins(chosen.staff_plugins)
    if name != "all" and name not in plugins:
        raise UsageError(f"There is no staff plugin {name!r}.", next_step=f"Use one of {', '.join(plugins)}, or all.")
    home = chosen.home().ensure()
    ctx = StaffContext(time.time(), archive_days=chosen.archive_days, max_session_cycles=chosen.max_session_cycles)
    with Ledger(home.ledger) as ledger:
        records = Records(home, ledger)
        runs = [
            run_plugin(plugin, records, ctx, granted=trust, dry_run=dry_run)
            for plugin_name, (plugin, trust) in plugins.items()
            if name in {"all", plugin_name}
        ]
    if as_json:
        print_json([done.to_json() for done in runs])
    else:
        for done in runs:
            _show(done)
    bad = [done for done in runs if done.status != "ok"]
    if bad:
        raise SchoolError(
            f"{', '.join(done.plugin for done in bad)} did not end well: {bad[0].reason}.",
            next_step="Nothing that it asked for was carried out, unless the reason says otherwise.",
        )


def _show(done: StaffRun) -> None:
    from orchestrator.cli.terminal import Terminal, safe

    terminal = Terminal(sys.stdout)
    what = "would do" if done.dry_run else "did"
    terminal.line(
        f"{done.plugin}  {done.status}  {done.reads} reads, {done.writes} writes  {safe(done.reason)}".rstrip()
    )
    for text in done.findings:
        terminal.line(f"  found     {safe(text)}")
    for text in done.effects:
        terminal.line(f"  {what:<9} {safe(text)}")
    for change in done.proposals:
        terminal.line(
            f"  proposes  {safe(change['profile'])} {change['delta']:+g}: {safe(change['why'])} (yours to make)"
        )
