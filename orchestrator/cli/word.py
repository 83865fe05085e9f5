"""A person's last word: inbox, approve, reject, fix, apply; and review, for what was parked without one."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.cli.terminal import Terminal
    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.word import Given, Words

app = typer.Typer(add_completion=False, rich_markup_mode=None)
JSON = typer.Option(False, "--json", help="JSON on stdout.")
BEAD = typer.Argument(..., help="Bead id, or its end.")
REHEARSAL = typer.Option(False, "--rehearsal", help="Even though a scripted model answered.")
VIA = "command line"


@contextlib.contextmanager
def _desk() -> Iterator[tuple[Home, Ledger, Words]]:
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.word import Words
    from orchestrator.settings import settings

    in_force = settings()
    home = in_force.home().ensure()
    with Ledger(home.ledger) as ledger:
        yield home, ledger, Words(home, ledger, fix_rounds=in_force.fix_rounds)


def _bead(name: str) -> str:
    from orchestrator.cli.look import find_bead

    return str(find_bead(name)["bead"])


@app.command()
def inbox(as_json: bool = JSON) -> None:
    """List accepted beads that wait for your word, oldest first."""
    from orchestrator.cli.terminal import Terminal, one_line

    with _desk() as (_, _, words):
        rows = words.inbox()
    if as_json:
        keys = ("bead", "repo", "base_sha", "head_sha", "created")
        print_json([{k: row[k] for k in keys} | {"report": row["data"].get("report")} for row in rows])
        return
    terminal = Terminal(sys.stdout)
    if not rows:
        terminal.line("nothing waits for your word")
        return
    cells = []
    for row in rows:
        report = row["data"].get("report") or {}
        scores = "/".join("?" if s is None else f"{s:g}" for s in (report.get("scores") or {}).values())
        stat = report.get("diffstat") or {}
        change = f"+{stat.get('additions', 0)} -{stat.get('deletions', 0)}" if stat.get("files") else "text"
        mark = "rehearsal" if report.get("rehearsal") else ""
        since = time.strftime("%m-%d %H:%M", time.localtime(row["updated"]))
        task = one_line(row["data"]["request"]["task"], limit=50)
        cells.append([row["bead"], since, (row["head_sha"] or "")[:12], scores, change, mark, task])
    terminal.table(cells, ["BEAD", "SINCE", "COMMIT", "CTO/COO", "CHANGE", "", "TASK"])
    terminal.line("\nlook: school show BEAD, school diff BEAD")
    terminal.line("say:  school approve BEAD --apply, school reject BEAD --why …, school fix BEAD --note …")


@app.command()
def approve(
    bead: str = BEAD,
    sha: str | None = typer.Option(None, "--sha", help="The commit that you approve [default: shown and asked for]."),
    apply: bool = typer.Option(False, "--apply", help="Merge it at once into the branch that is checked out."),
    rehearsal: bool = REHEARSAL,
    as_json: bool = JSON,
) -> None:
    """Approve exactly the commit that both judges passed; refused when that no longer holds, or anything moved."""
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.apply import check_rehearsal

    terminal = Terminal(sys.stderr)
    with _desk() as (home, ledger, words):
        name = _bead(bead)
        row = ledger.bead(name) or {}
        if apply:
            check_rehearsal(row, rehearsal=rehearsal)  # before the word is given, not after it
        given = words.approve(name, sha or _confirmed(terminal, row), via=VIA)
        merged = None
        if apply and row["head_sha"] != row["base_sha"]:
            merged = _apply(terminal, home, ledger, name, rehearsal=rehearsal)
    _close(terminal, given, as_json=as_json, applied=merged)


@app.command("apply")
def apply_(bead: str = BEAD, rehearsal: bool = REHEARSAL, as_json: bool = JSON) -> None:
    """Merge an approved bead's commit into the branch that its repository has checked out; all of it, or nothing."""
    from orchestrator.cli.terminal import Terminal

    with _desk() as (home, ledger, _):
        merged = _apply(Terminal(sys.stderr), home, ledger, _bead(bead), rehearsal=rehearsal)
    if as_json:
        print_json(merged)


@app.command()
def reject(
    bead: str = BEAD, why: str = typer.Option(..., "--why", help="Your reason, for the record."), as_json: bool = JSON
) -> None:
    """Decline accepted work: nothing is merged; its branch stays until you delete it."""
    from orchestrator.cli.terminal import Terminal

    with _desk() as (_, _, words):
        given = words.decline(_bead(bead), why, via=VIA)
    _close(Terminal(sys.stderr), given, as_json=as_json)


@app.command()
def fix(
    bead: str = BEAD,
    note: str = typer.Option(
        ..., "--note", help="What is to be done differently; a new student and both judges read it."
    ),
    detach: bool = typer.Option(False, "--detach", help="Return at once; follow it with: school logs -f BEAD."),
    later: bool = typer.Option(False, "--later", help="Leave it to the next school tick."),
    as_json: bool = JSON,
) -> None:
    """Send the work to a new student with your note and the findings; both judges again. Ends as the new bead ends."""
    from orchestrator.cli.live import Live, summary
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.fixing import drive_fix, start_fix

    if detach and later:
        raise UsageError("--detach and --later exclude each other.", next_step="Use one of them.")
    terminal = Terminal(sys.stderr)
    with _desk() as (home, ledger, words):
        name = _bead(bead)
        given = words.request_fix(name, note, via=VIA)
        opened = given.next_bead is not None and ledger.bead(given.next_bead) is not None
        if later or opened:
            _close(terminal, given, as_json=as_json)
            return
        terminal.line(f"{name}: fix requested; the new student's bead is {given.next_bead}")
        if detach:
            start_fix(words, name)
            _close(terminal, given, as_json=as_json)
            return
        report = drive_fix(home, words, name, Live(terminal))
    summary(terminal, report)
    if as_json:
        print_json(report.to_json())
    raise typer.Exit(report.exit_code)


@app.command()
def review(
    bead: str = BEAD,
    sync: bool = typer.Option(False, "--sync/--async", help="Review in this process instead of by the teachers."),
    as_json: bool = JSON,
) -> None:
    """Have a bead judged that ended as not_reviewed: its commit, evidence and bookbag are kept for that."""
    from orchestrator.cli.live import Live, summary
    from orchestrator.cli.terminal import Terminal
    from orchestrator.principal.again import review_again
    from orchestrator.principal.cancel import Cancellation
    from orchestrator.principal.dispatch import settle_end
    from orchestrator.principal.request import SpawnRequest
    from orchestrator.principal.school import open_school

    terminal = Terminal(sys.stderr)
    name = _bead(bead)
    with Cancellation().installed() as cancellation, open_school(terminal.line) as school:
        report = review_again(
            school, school.ledger, name, Live(terminal), cancellation, mode="sync" if sync else "async"
        )
        settle_end(school.home, SpawnRequest.from_json((school.ledger.bead(name) or {})["data"]["request"]))
    summary(terminal, report)
    if as_json:
        print_json(report.to_json())
    raise typer.Exit(report.exit_code)


def _confirmed(terminal: Terminal, row: dict[str, Any]) -> str:
    """Show what is approved, and have it confirmed.

    Raises:
        UsageError: nobody is there to confirm, or the answer is no.
    """
    from orchestrator.cli.live import summary
    from orchestrator.principal.report import Report

    head, report = str(row.get("head_sha") or ""), (row.get("data") or {}).get("report")
    if not sys.stdin.isatty():
        raise UsageError(
            f"Which commit of {row.get('bead')} is approved was not said.",
            next_step=f"Look at it (school diff {row.get('bead')}), then name it: --sha {head[:12]}",
        )
    if report:
        summary(terminal, Report(**report))
    if not typer.confirm(f"Approve commit {head}?", default=False, err=True):
        raise UsageError("Not approved: it waits on.")
    return head


def _apply(terminal: Terminal, home: Home, ledger: Ledger, bead: str, *, rehearsal: bool) -> dict[str, str]:
    from dataclasses import asdict

    from orchestrator.cli.terminal import safe
    from orchestrator.principal.apply import apply_bead

    merged = apply_bead(home, ledger, bead, rehearsal=rehearsal)
    how = {"already": "has it already", "fast-forward": "was moved to it", "merge": "has it by a merge commit"}
    terminal.line(f"{bead}: {safe(merged.branch)} {how[merged.how]}, now at {merged.commit[:12]}")
    return asdict(merged)


def _close(terminal: Terminal, given: Given, *, as_json: bool, applied: dict[str, str] | None = None) -> None:
    if as_json:
        print_json({**given.to_json(), "applied": applied})
        return
    again = " already" if given.repeated else ""
    where = f" commit {given.head_sha}" if given.state == "approved" else ""
    following = f"; new bead {given.next_bead}" if given.next_bead else ""
    terminal.line(f"{given.bead}: {given.state.replace('_', ' ')}{again}{where}{following}")
