"""``school route`` and ``school scores``: what the director would decide, and what it decides by."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json

if TYPE_CHECKING:
    from orchestrator.principal.director import Director, Route

app = typer.Typer(add_completion=False, rich_markup_mode=None)
JSON = typer.Option(False, "--json", help="JSON on stdout.")


@app.command()
def route(
    task: str = typer.Argument(..., help="The task; - reads it from stdin."),
    label: list[str] | None = typer.Option(None, "--label", help="A label of the task; may be repeated."),
    role: str | None = typer.Option(None, help="Given by you: eligibility is skipped, as in spawn."),
    difficulty: str | None = typer.Option(None, help="easy, medium, hard or diploma, given by you."),
    readiness: int | None = typer.Option(None, min=1, max=10, help="In place of what the profiles' history says."),
    ask: bool = typer.Option(False, "--ask", help="Ask SCHOOL_DIRECTOR_MODEL where no rule can tell (one call)."),
    as_json: bool = JSON,
) -> None:
    """Show how the director would classify a task, who is eligible, and why. Runs nothing; 10 means nobody is."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.errors import BlockedError
    from orchestrator.principal.director import check_words

    text = sys.stdin.read() if task == "-" else task
    check_words(role=role, difficulty=difficulty)
    found = _director(ask=ask).route(
        text, labels=tuple(label or ()), role=role, difficulty=difficulty, readiness=readiness
    )
    if as_json:
        print_json(found.to_json())
    else:
        _show(Terminal(sys.stdout), found)
    if found.blocked:
        raise typer.Exit(BlockedError.exit_code)


def _director(*, ask: bool) -> Director:
    from orchestrator.principal.director import director_of
    from orchestrator.principal.director_model import asker
    from orchestrator.principal.ledger import Ledger
    from orchestrator.settings import settings

    in_force = settings()
    home = in_force.home()
    ledger = Ledger(home.ledger) if home.ledger.exists() else None
    return director_of(home, ledger, asker(in_force, lambda text: print(text, file=sys.stderr)) if ask else None)


def _show(terminal: Any, found: Route) -> None:
    from orchestrator.cli.terminal import one_line

    for name, answer in (("role", found.role), ("domain", found.domain), ("difficulty", found.difficulty)):
        terminal.line(f"{name:<11} {terminal.paint(answer.value, 'bold')}  {one_line(answer.by, limit=200)}")
    terminal.line(f"{'gate':<11} score {found.gate} or more, readiness {found.readiness_needed} or more")
    rows = [
        [c.profile, f"{c.score:.1f}", c.readiness, f"{c.efc:.3f}", c.refused or _taken(found, c.profile)]
        for c in found.candidates
    ]
    if rows:
        terminal.line()
        terminal.table(rows, ["PROFILE", "SCORE", "READINESS", "EFC", ""])
    if found.blocked:
        terminal.line()
        terminal.line(f"{terminal.paint('blocked', 'red')}  {one_line(found.blocked, limit=400)}")
        terminal.line(f"         a role that you give skips this: --role {found.role.value}")
    terminal.line()
    terminal.line(terminal.paint(f"rules: {', '.join(found.files)}", "dim"))


def _taken(found: Route, profile: str) -> str:
    return "takes it" if found.profile is not None and found.profile.name == profile else "eligible"


@app.command()
def scores(
    profile: str | None = typer.Argument(None, help="Show the changes of this profile [default: all profiles]."),
    bead: str | None = typer.Option(None, "--bead", help="Show a bead's change and its feedback events."),
    limit: int = typer.Option(20, min=1, help="Changes shown."),
    as_json: bool = JSON,
) -> None:
    """Show the profiles' scores, every change with its bead and cause, and the EFC figures (R-41, R-42)."""
    from orchestrator.cli.look import find_bead
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.score_report import score_report

    found = score_report(profile=profile or "", bead=str(find_bead(bead)["bead"]) if bead else "", limit=limit)
    if as_json:
        print_json(found)
        return
    terminal = Terminal(sys.stdout)
    if not bead:
        rows = [
            [p["profile"], p["role"], f"{p['score']:.1f}", p["beads"], _ready(p["readiness"]), _efc(p["efc"])]
            for p in found["profiles"]
        ]
        terminal.table(rows, ["PROFILE", "ROLE", "SCORE", "BEADS", "READINESS easy/medium/hard/diploma", "EFC"])
    terminal.line()
    rows = [
        [_when(c["at"]), c["profile"], c["bead"] or "", f"{c['old']:.1f} → {c['new']:.1f}", c["cause"]]
        for c in found["changes"]
    ]
    terminal.table(rows, ["WHEN", "PROFILE", "BEAD", "SCORE", "CAUSE"]) if rows else terminal.line("no change yet")
    if bead:
        terminal.line()
        rows = [
            [f["source"], f["issue"], *(_flag(f[n]) for n in ("informative", "valid", "non_redundant", "retained"))]
            for f in found["feedback"]
        ]
        terminal.table(rows, ["FROM", "ISSUE", "INFORMATIVE", "VALID", "NEW", "RETAINED"])
        terminal.line(f"EFC {_efc(found['efc'])}")


def _when(at: float) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def _ready(by_level: dict[str, int]) -> str:
    return "/".join(str(value) for value in by_level.values())


def _efc(figure: dict[str, Any]) -> str:
    return f"{figure['value']:.3f} ({figure['effective']} of {figure['events']}, {figure['open']} open)"


def _flag(value: bool | None) -> str:
    return "open" if value is None else "yes" if value else "no"
