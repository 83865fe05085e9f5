"""Looking: ps, show, logs, diff, status. Nothing here changes anything."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.terminal import Terminal
    from orchestrator.home import Home

app = typer.Typer(add_completion=False, rich_markup_mode=None)
PARTS = ("omniroute", "gate", "rehearsal", "teacher-cto", "teacher-coo")
JSON = typer.Option(False, "--json", help="JSON on stdout.")


def _home() -> Home:
    """Return the home, found without the settings: what is read here lies where no setting moves it."""
    from orchestrator.home import home_at, home_root

    return home_at(home_root())


def _rows(*, running: bool | None, limit: int) -> list[dict[str, Any]]:
    from orchestrator.principal.ledger import Ledger

    home = _home()
    if not home.ledger.exists():
        return []
    with Ledger(home.ledger) as ledger:
        return ledger.beads(running=running, limit=limit)


def find_bead(bead: str) -> dict[str, Any]:
    """Return a bead's row; a unique beginning or end of its id is enough.

    Raises:
        UsageError: no such bead, or several.
    """
    rows = _rows(running=None, limit=100_000)
    found = [row for row in rows if row["bead"] == bead] or [
        row for row in rows if row["bead"].startswith(bead) or row["bead"].endswith(bead)
    ]
    if len(found) == 1:
        return found[0]
    what = "No bead" if not found else f"{len(found)} beads"
    raise UsageError(f"{what} named {bead!r} in {_home().root}.", next_step="List them with: school ps --all")


@app.command()
def ps(everything: bool = typer.Option(False, "--all", "-a", help="Ended beads too."), as_json: bool = JSON) -> None:
    """List beads that run, or whose removal is open."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.lease import bead_lease_path, held

    home = _home()
    rows = _rows(running=None if everything else True, limit=200)
    listed = [
        {
            "bead": row["bead"],
            "status": row["status"],
            "outcome": row["outcome"],
            "cleanup": row["cleanup"],
            "driven": held(bead_lease_path(home.leases, row["bead"])),
            "repo": row["repo"],
            "created": row["created"],
        }
        for row in rows
    ]
    if as_json:
        print_json(listed)
        return
    terminal = Terminal(sys.stdout)
    _show_strangers(Terminal(sys.stderr))
    if not listed:
        terminal.line("no beads" if everything else "no bead runs (school ps --all lists the ended ones)")
        return
    cells = [
        [
            row["bead"],
            row["outcome"] or ("running" if row["driven"] else "owner gone"),
            row["cleanup"],
            time.strftime("%m-%d %H:%M", time.localtime(row["created"])),
            row["repo"],
        ]
        for row in listed
    ]
    terminal.table(cells, ["BEAD", "OUTCOME", "CLEANUP", "STARTED", "REPOSITORY"])


def _show_strangers(terminal: Terminal) -> None:
    """Name overdue students on the engine that are not provably this home's: nobody but a person may remove them."""
    home = _home()
    if not (home.school / "home-id").exists():
        return  # nothing was ever made from here, so nothing need be imported to look for it
    from orchestrator.engine.connect import connect
    from orchestrator.errors import EngineError
    from orchestrator.principal.doctor import stranger_rows

    try:
        engine = connect()
    except EngineError:
        return  # ps tells of the ledger, with or without an engine
    try:
        for row in stranger_rows(engine, home):
            terminal.line(f"not provably this home's, so it stays: {row['what']}; by hand: {row['remove']}")
    finally:
        engine.close()


@app.command()
def show(bead: str = typer.Argument(..., help="Bead id, or its end."), as_json: bool = JSON) -> None:
    """Show a bead: verdicts, findings, score, branch."""
    from orchestrator.cli.live import summary
    from orchestrator.cli.terminal import Terminal, safe
    from orchestrator.principal.report import Report

    row = find_bead(bead)
    report = row["data"].get("report")
    if as_json:
        print_json(report or {"bead": row["bead"], "outcome": row["outcome"], "state": row["status"]})
        return
    terminal = Terminal(sys.stdout)
    terminal.line(f"bead {row['bead']}  in {safe(row['repo'])}")
    if report is None:
        terminal.line(f"  {row['outcome'] or row['status']}; school logs -f {row['bead']} follows it")
        return
    terminal.line(f"task {safe(report['task'], limit=2000, lines=True)}")
    summary(terminal, Report(**report))
    _word(terminal, row)
    if report["output"]:
        terminal.line("\nwhat the student said (a claim, not evidence):")
        terminal.line(safe(report["output"], limit=8000, lines=True))
    for text in report["diagnostics"]:
        terminal.line(f"note {safe(text, limit=600)}")
    if report["verification"]["status"] not in {"passed", "not_configured"} and report["verification"]["log"]:
        terminal.line("\nend of the check's output:")
        terminal.line(safe(report["verification"]["log"][-3000:], limit=3100, lines=True))


def _word(terminal: Terminal, row: dict[str, Any]) -> None:
    """Show what a person said, and which bead came before or after (R-43)."""
    from orchestrator.cli.terminal import safe

    word, fix = row["data"].get("word") or {}, (row["data"]["request"].get("context") or {}).get("fix") or {}
    if row["human"]:
        said = word.get("why") or word.get("note") or ""
        terminal.line(f"  a person's word: {row['human'].replace('_', ' ')}  {safe(said, limit=600)}".rstrip())
    if fix:
        terminal.line(f"  fixes {fix['of']} (round {fix['round']})")
    if row["human"] == "fix_requested":
        terminal.line(f"  fixed by {word.get('next')}")
    if applied := row["data"].get("applied"):
        terminal.line(f"  applied to {safe(applied['branch'])} as {applied['commit'][:12]} ({applied['how']})")


@app.command()
def logs(
    bead: str = typer.Argument(..., help="Bead id, or its end; or a standing part: omniroute, gate, teacher-cto, …"),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on until it ends; exit with its outcome's number."),
    as_json: bool = typer.Option(False, "--json", help="The log's own JSON lines."),
) -> None:
    """Show what happened in a bead; -f follows it and ends with its outcome."""
    from orchestrator.principal.journal import log_path

    if bead in PARTS:
        _part_logs(bead)
        return
    path = log_path(_home(), bead)
    if not path.exists():
        path = log_path(_home(), find_bead(bead)["bead"])
    show = _Printer(as_json=as_json)
    for line in _lines(path, follow=follow):
        code = show.line(line)
        if code is not None and follow:
            raise typer.Exit(code)


def _part_logs(kind: str) -> None:
    """Print the end of a standing part's output."""
    from orchestrator.cli.terminal import safe
    from orchestrator.principal.status import part_logs

    for text in part_logs(kind).splitlines():
        print(safe(text, limit=2000))


class _Printer:
    """Shows lines of a bead's log; the last one carries the outcome's number."""

    def __init__(self, *, as_json: bool) -> None:
        from orchestrator.cli.live import Live
        from orchestrator.cli.terminal import Terminal

        self._as_json = as_json
        self._terminal = Terminal(sys.stdout)
        self._live = Live(self._terminal, heartbeat=False)

    def line(self, text: str) -> int | None:
        """Show one line; return the exit code that it carries."""
        entry = json.loads(text)
        self._live.at = entry.get("at")
        if self._as_json:
            print(text, flush=True)
        else:
            self._show(entry)
        return int(entry["exit_code"]) if entry.get("kind") == "end" else None

    def _show(self, entry: dict[str, Any]) -> None:
        from orchestrator.cli.live import summary
        from orchestrator.principal.report import Report

        match entry.get("kind"):
            case "step" if entry["state"] == "started":
                self._live.step_started(entry["name"])
            case "step":
                self._live.step_ended(entry["name"], entry["ms"], ok=entry["state"] == "done")
            case "agent":
                self._live.agent_event(entry["event"])
            case "note":
                self._live.note(entry["text"])
            case "end":
                summary(self._terminal, Report(**entry["report"]))
            case _:
                pass


def _lines(path: Path, *, follow: bool) -> Any:
    from orchestrator.principal.lease import bead_lease_path, held

    lease = bead_lease_path(_home().leases, path.stem)
    idle_since: float | None = None
    with path.open(encoding="utf-8") as file:
        partial = ""
        while True:
            chunk = file.readline()
            if chunk:
                idle_since = None
                partial += chunk
                if partial.endswith("\n"):
                    yield partial.rstrip("\n")
                    partial = ""
                continue
            if not follow:
                return
            if held(lease):
                idle_since = None
            else:
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since > 5:
                    print("school: nobody drives this bead any more", file=sys.stderr)
                    raise typer.Exit(7)
            time.sleep(0.1)


@app.command()
def diff(
    bead: str = typer.Argument(..., help="Bead id, or its end."),
    stat: bool = typer.Option(False, "--stat", help="Only the files and their counts."),
    as_json: bool = JSON,
) -> None:
    """Show a bead's change."""
    from orchestrator.cli.terminal import safe
    from orchestrator.git.landing import diff as git_diff
    from orchestrator.git.repository import open_repository

    row = find_bead(bead)
    if not row["head_sha"] or row["head_sha"] == row["base_sha"]:
        raise UsageError(
            f"Bead {row['bead']} changed nothing.", next_step=f"See what it said: school show {row['bead']}"
        )
    report = row["data"].get("report") or {}
    if stat and not as_json:
        for path in report.get("files_changed", []):
            print(safe(path))
        counts = report.get("diffstat") or {}
        if counts:
            print(f"{counts['files']} file(s), +{counts['additions']} -{counts['deletions']}")
        return
    text = git_diff(open_repository(Path(row["repo"])), row["base_sha"], row["head_sha"]).decode("utf-8", "replace")
    if as_json:
        print_json({"bead": row["bead"], "base_sha": row["base_sha"], "head_sha": row["head_sha"], "diff": text})
    elif sys.stdout.isatty():
        print(safe(text, limit=10_000_000, lines=True), end="")
    else:
        print(text, end="")  # a file or a patch program wants the bytes as they are


@app.command()
def status(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Every setting in force."), as_json: bool = JSON
) -> None:
    """Show the standing parts and the settings in force."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.status import school_status

    found = school_status()
    if as_json:
        print_json(found)
        return
    terminal = Terminal(sys.stdout)
    terminal.line(f"home    {found['home']}  ({found['home_id'] or 'not made yet'})")
    terminal.line(f"engine  {found['engine']}")
    terminal.table(
        [[p["kind"], p["state"], p["name"], p["image"]] for p in found["parts"]], ["PART", "STATE", "NAME", "IMAGE"]
    )
    terminal.line(
        f"beads   {found['running']} running, {found['ended']} ended, {found['open_cleanup']} with removal open"
    )
    if verbose:
        rows = [[name, value, found["decided_by"][name]] for name, value in found["settings"].items()]
        terminal.table(rows, ["SETTING", "VALUE", "DECIDED BY"])
