"""``school tick``: one round, for a scheduler. ``school serve``: the same, again and again, in one process (R-102)."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.errors import SchoolError

if TYPE_CHECKING:
    from orchestrator.principal.tick import Ticked

app = typer.Typer(add_completion=False, rich_markup_mode=None)
JSON = typer.Option(False, "--json", help="One JSON object on stdout for each round.")


@app.command()
def tick(
    wait: bool = typer.Option(False, "--wait", help="Stay until the beads that it started have ended (for CI)."),
    as_json: bool = JSON,
) -> None:
    """Do one round and exit: recovery, mail, fixes, ready tasks, staff. A second one at the same time does nothing.

    Ends with 0 when the round was done, or another one is under way; with 1 when a step of it failed.
    """
    from orchestrator.principal.tick import tick as one_round
    from orchestrator.settings import settings

    done = one_round(settings(), _say, wait=wait)
    _show(done, as_json=as_json)
    raise typer.Exit(1 if done is not None and done.problems else 0)


@app.command()
def serve(
    interval: float | None = typer.Option(None, "--interval", help="Seconds between rounds [default: 60]."),
    as_json: bool = JSON,
) -> None:
    """Do one round after the other until it is told to end (Ctrl-C, SIGTERM); beads that run go on without it."""
    from orchestrator.errors import UsageError
    from orchestrator.principal.tick import tick as one_round
    from orchestrator.settings import settings

    pause = interval if interval is not None else settings().tick_interval
    if not pause > 0:
        raise UsageError(f"--interval is {pause:g}; it must be above 0.", next_step="Give it seconds.")
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    _say(f"serving: one round each {pause:g} s")
    while not ending.is_set():
        try:
            _show(one_round(settings(), _say), as_json=as_json)
        except SchoolError as error:  # the engine is away, say: the next round may find it back
            if error.exit_code == 130:
                break
            _say(f"the round failed: {error.message} {error.next_step}")
        ending.wait(pause)
    _say("ended; beads that run go on")


def _show(done: Ticked | None, *, as_json: bool) -> None:
    from orchestrator.cli.terminal import one_line

    if as_json:
        print(json.dumps({"tick": None} if done is None else {"tick": done.to_json()}), flush=True)
        return
    if done is None:
        _say("another tick is under way in this home: nothing to do")
        return
    lines: list[tuple[str, Any]] = [
        ("recovered", done.recovered),
        ("task settled", [f"{s['task']}: {s['status']} ({s['reason']})" for s in done.settled]),
        ("notice sent", done.notices),
        ("mail", [f"{a['bead'] or '?'}: {a['command'] or 'ignored'}: {a['result']}" for a in done.answers]),
        ("fix started", done.fixes),
        ("started", done.started),
        ("set aside", [f"{r['task']}: {r['reason']}" for r in done.refused]),
        ("staff", [f"{s['plugin']}: {s['status']} {s['reason']}" for s in done.staff]),
        ("problem", done.problems),
    ]
    said = [(name, text) for name, texts in lines for text in texts]
    for name, text in said:
        _say(f"{name:<12} {one_line(text, limit=300)}")
    if not said:
        _say("nothing was due")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
