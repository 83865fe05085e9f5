"""``school teacher``: a teacher's state, history, drift and agreement (R-32 to R-37)."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def teacher(
    name: str = typer.Argument(..., help="cto or coo."), as_json: bool = typer.Option(False, "--json", help="JSON.")
) -> None:
    """Show a teacher's state, history, drift and agreement."""
    from orchestrator.cli.terminal import Terminal, safe
    from orchestrator.home import home_at, home_root
    from orchestrator.principal.teachers import teacher_report

    found = teacher_report(home_at(home_root()), name.removeprefix("teacher-"))
    if as_json:
        print(json.dumps(found))
        return
    terminal = Terminal(sys.stdout)
    beat, state = found["heartbeat"] or {}, found["session"] or {}
    terminal.line(f"teacher-{found['teacher']}  {safe(found['problem']) or 'healthy'}")
    if beat:
        running = ", ".join(map(str, beat.get("running", []))) or "nothing"
        terminal.line(f"  now        reviews {safe(running)}; {beat.get('reviews', 0)} reviews in this life")
    if found["session_problem"]:
        terminal.line(f"  session    {safe(found['session_problem'])}")
    if state:
        terminal.line(f"  is         {safe(state['layer_0'])}")
        terminal.line(f"  session    {safe(state['session_id'])}, written {safe(state['timestamp'])}")
        terminal.line(f"  building   {safe(state['building'])}")
        terminal.line(f"  queue      {len(state['task_queue'])} beads")
        terminal.line("  memory     " + safe(state["layer_2_summary"], lines=True).replace("\n", "\n             "))
    terminal.line(f"  sessions   {len(found['sessions'])} consolidated")
    _figures(terminal, found)
    rows: list[list[Any]] = [
        [
            entry.get("at", ""),
            entry["bead"],
            entry.get("verdict") or "no review",
            entry.get("score", ""),
            entry.get("reason") or ", ".join(map(str, entry.get("issue_classes") or [])),
        ]
        for entry in found["history"]
    ]
    if rows:
        terminal.line()
        terminal.table(rows, ["AT", "BEAD", "VERDICT", "SCORE", "PROBLEMS"])


def _figures(terminal: Any, found: dict[str, Any]) -> None:
    drift, agreed = found["drift"], found["agreement"]
    if drift["window"]:
        terminal.line(
            f"  drift      {'YES' if drift['drifting'] else 'no'}: passed {drift['passed']} of the last "
            f"{drift['window']}; {drift['second_looks']} second looks, {drift['found_at_second']} found something"
        )
    if agreed["beads"]:
        kappa = "" if agreed["kappa"] is None else f", kappa {agreed['kappa']:.2f}"
        gap = "" if agreed["score_gap"] is None else f", score {agreed['score_gap']:+.1f} to the other's"
        terminal.line(
            f"  agreement  {agreed['agreed']} of {agreed['beads']} beads{kappa}; alone failed {agreed['stricter']}, "
            f"alone passed {agreed['milder']}{gap}"
        )
