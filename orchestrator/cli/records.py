"""Records and their keys: ``verify-record``, ``keys``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import typer

from orchestrator.errors import EngineUnavailableError

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
keys = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="The judges' seal keys.")
app.add_typer(keys, name="keys")

JSON = typer.Option(False, "--json", help="JSON on stdout.")
COLOURS = {"holds": "green", "broken": "red", "unknown": "yellow"}


@app.command("verify-record")
def verify_record(bead: str = typer.Argument(..., help="Bead id, or its end."), as_json: bool = JSON) -> None:
    """Check a bead's archived record again: seals, commit, evidence, acceptance, refs. Exit code 1: something broke."""
    from orchestrator.cli.look import _home, find_bead
    from orchestrator.cli.terminal import Terminal, one_line
    from orchestrator.principal.verify_record import verify_record as check

    row = find_bead(bead)
    claims = check(_home(), row)
    broken = [claim for claim in claims if claim.state == "broken"]
    if as_json:
        print(json.dumps({"bead": row["bead"], "holds": not broken, "claims": [asdict(claim) for claim in claims]}))
    else:
        terminal = Terminal(sys.stdout)
        terminal.line(f"record of {row['bead']}")
        for claim in claims:
            state = terminal.paint(f"{claim.state:<8}", COLOURS[claim.state])
            terminal.line(f"  {state} {claim.name:<12} {one_line(claim.detail, limit=400)}")
    if broken:
        raise typer.Exit(1)


@keys.command("list")
def list_keys(as_json: bool = JSON) -> None:
    """List the judges' keys by their public names; never a key."""
    from orchestrator.cli.look import _home
    from orchestrator.principal.keys import listed

    _show([asdict(key) for key in listed(_home())], as_json=as_json)


@keys.command("rotate")
def rotate_keys(
    forget: bool = typer.Option(
        False, "--forget", help="Somebody else may have the old keys: records that they sealed no longer verify."
    ),
    as_json: bool = JSON,
) -> None:
    """Give both judges new keys; the old ones only prove old records from now on."""
    from orchestrator.engine.connect import connect
    from orchestrator.principal.bring_up import ensure_parts
    from orchestrator.principal.keys import rotate
    from orchestrator.principal.take_down import open_beads
    from orchestrator.settings import settings

    home = settings().home()
    try:
        engine = connect()
    except EngineUnavailableError:
        engine = None  # then no judge runs
    try:
        were_there = engine is not None and _judges(engine, home.id)
        after = rotate(home, engine, open_beads=open_beads(home), forget=forget)
        if engine is not None and were_there:
            ensure_parts(engine, home, settings(), _say)
    finally:
        if engine is not None:
            engine.close()
    _show([asdict(key) for key in after], as_json=as_json)


def _judges(engine: object, home_id: str) -> bool:
    from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, Engine
    from orchestrator.sandbox import parts

    assert isinstance(engine, Engine)  # noqa: S101 - lazily imported type
    return any(engine.list({LABEL_HOME: home_id, LABEL_KIND: parts.teacher_kind(t)}) for t in parts.TEACHERS)


def _show(rows: list[dict[str, object]], *, as_json: bool) -> None:
    from orchestrator.cli.terminal import Terminal

    if as_json:
        print(json.dumps(rows))
        return
    cells = [[row["teacher"], row["key_id"], "retired" if row["retired"] else "in force"] for row in rows]
    Terminal(sys.stdout).table(cells, ["JUDGE", "KEY", "STATE"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
