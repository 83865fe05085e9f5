"""Care: janitor, resume, cancel, gc, doctor. What died is finished, what is left over removed, what is wrong named."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.doctor import Check

app = typer.Typer(add_completion=False)
JSON = typer.Option(False, "--json", help="JSON on stdout.")
LEFT_OVER = 8
"""Exit code when something could not be removed."""


@app.command()
def janitor() -> None:
    """Finish and remove what dead processes left, until nothing is left to guard. A spawn starts one by itself."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.janitor import Janitor
    from orchestrator.settings import settings

    terminal = Terminal(sys.stderr)
    home = settings().home().ensure()
    if not Janitor(home.leases, home.ledger, terminal.line).run():
        terminal.line("this home has a janitor already; its log: " + str(home.logs / "janitor.log"))


@app.command()
def resume(
    bead: str | None = typer.Argument(None, help="Bead id, or its end [default: every bead that nobody drives]."),
    as_json: bool = JSON,
) -> None:
    """Adopt beads whose process died, and take them to their end. Ctrl-C cancels the one at hand, as in a spawn."""
    from orchestrator.cli.live import Live, summary
    from orchestrator.cli.look import find_bead
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.cancel import Cancellation
    from orchestrator.principal.recovery import Sweeper, Swept
    from orchestrator.principal.resume import Resumer
    from orchestrator.principal.school import open_school

    terminal = Terminal(sys.stderr)
    one = find_bead(bead)["bead"] if bead is not None else None
    results = []
    with Cancellation().installed() as cancellation, open_school(terminal.line) as school:
        resumer = Resumer(school, school.ledger, cancellation)
        beads = [one] if one else [str(row["bead"]) for row in reversed(school.ledger.beads(running=True))]
        for name in beads:
            done = resumer.resume(name, Live(terminal))
            if done is None:
                terminal.line(f"{name}: somebody drives it, or nothing is left to do")
                continue
            results.append(done)
            if done.report is not None:
                summary(terminal, done.report)
            if cancellation.cancelled:
                break
        swept = Sweeper(school, school.ledger).sweep(all_beads=False) if one is None else Swept()
    if as_json:
        rows = [{"bead": d.bead, "outcome": d.outcome, "left": d.left} for d in results]
        print_json(rows)
    elif not results:
        terminal.line("nothing to resume")
    if one and results and results[0].report is not None:
        raise typer.Exit(results[0].report.exit_code)
    for left in swept.open:
        terminal.line(f"left over, and not removed yet: {left}")
    raise typer.Exit(LEFT_OVER if swept.open or any(done.left for done in results) else 0)


@app.command()
def cancel(bead: str = typer.Argument(..., help="Bead id, or its end."), as_json: bool = JSON) -> None:
    """End a bead now, whoever drives it: its student is removed, what it did is kept at refs/school/<bead>."""
    from orchestrator.cli.look import find_bead
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.resume import cancel as cancel_bead

    terminal = Terminal(sys.stderr)
    row = cancel_bead(str(find_bead(bead)["bead"]), terminal.line)
    if as_json:
        print_json({name: row[name] for name in ("bead", "outcome", "cleanup", "head_sha")})
    else:
        kept = f"; its work: refs/school/{row['bead']}" if row["head_sha"] not in {None, row["base_sha"]} else ""
        terminal.line(f"{row['bead']}: {row['outcome']}, removal {row['cleanup']}{kept}")
    raise typer.Exit(0 if row["cleanup"] in {"done", "kept"} else LEFT_OVER)


@app.command()
def gc(
    apply: bool = typer.Option(False, "--apply", help="Remove what is listed; without it nothing is touched."),
    kept: bool = typer.Option(False, "--kept", help="Leaves that --keep left, too, whatever their age."),
    as_json: bool = JSON,
) -> None:
    """List what nobody needs any more: orphans, old records, old refs, dangling images; --apply removes it."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.gc import collect, open_collector

    terminal = Terminal(sys.stderr)
    with open_collector(terminal.line) as collector:
        items = collect(collector, kept=kept)
        gone = {id(item): collector.remove(item) if apply else None for item in items}
    failed = sum(done is False for done in gone.values())
    if as_json:
        rows = [
            {"kind": item.kind, "name": item.name, "reason": item.reason, "removed": gone[id(item)]} for item in items
        ]
        print_json(rows)
    else:
        out = Terminal(sys.stdout)
        state = {None: "would go", True: "removed", False: "still there"}
        if items:
            out.table([[i.kind, i.name, i.reason, state[gone[id(i)]]] for i in items], ["WHAT", "NAME", "WHY", "STATE"])
        if not items:
            terminal.line("nothing to remove")
        elif not apply:
            terminal.line("nothing was touched; remove it with: school gc --apply" + (" --kept" if kept else ""))
    raise typer.Exit(LEFT_OVER if failed else 0)


@app.command()
def doctor(as_json: bool = JSON) -> None:
    """Look at everything the school needs: each point is ok, warn or fail, with the next step. Fails exit with 1."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.doctor import FAIL, examine

    started = time.monotonic()
    checks = list(examine())
    if as_json:
        print_json([check.to_json() for check in checks])
    else:
        _show(Terminal(sys.stdout), checks, time.monotonic() - started)
    raise typer.Exit(1 if any(check.status == FAIL for check in checks) else 0)


def _show(terminal: Terminal, checks: Sequence[Check], seconds: float) -> None:
    from orchestrator.cli.terminal import one_line

    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for check in checks:
        mark = terminal.paint(f"{check.status:<4}", colours[check.status])
        terminal.line(f"{mark}  {check.name:<14} {one_line(check.detail, limit=300)}")
        if check.next_step:
            terminal.line(f"      {'':<14} → {one_line(check.next_step, limit=300)}")
    bad = sum(check.status != "ok" for check in checks)
    terminal.line(f"{len(checks)} checks, {bad} not ok, {seconds:.1f} s")
