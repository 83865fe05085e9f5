"""The live view of a bead on a terminal: each step with its time, the agent's tool calls as they happen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from orchestrator.cli.terminal import Terminal, one_line, safe

if TYPE_CHECKING:
    from orchestrator.principal.report import Report

TITLES = {
    "grant": "gateway key for this bead",
    "worktree": "worktree",
    "container": "container made",
    "run": "student",
    "grant_closed": "gateway key revoked",
    "freeze": "result frozen",
    "ref": "commit kept",
    "verify": "verification",
    "baseline": "same check on base",
    "evidence": "evidence for the judges",
    "bookbag": "bookbag written",
    "signal": "judges signalled",
    "review": "judges",
    "review_here": "judges (in this process)",
    "acceptance": "acceptance",
    "branch": "branch",
    "dispose": "student removed",
}
MARKS = {"PASS": "green", "FAIL": "red"}


class Live:
    """A listener that writes to people. One line a step, so that it reads the same in a CI log."""

    def __init__(self, terminal: Terminal, *, quiet: bool = False) -> None:
        self._terminal = terminal
        self._quiet = quiet
        self._started = time.monotonic()

    def _line(self, text: str) -> None:
        if not self._quiet:
            elapsed = time.monotonic() - self._started
            self._terminal.line(f"{self._terminal.paint(f'{elapsed:6.1f}s', 'dim')}  {text}")

    def step_started(self, name: str) -> None:
        """Announce the steps that take long."""
        if name in {"run", "verify", "baseline", "review", "review_here"}:
            self._line(f"{TITLES.get(name, name)} …")

    def step_ended(self, name: str, milliseconds: float, *, ok: bool) -> None:
        """Write a finished step and its time."""
        if "." in name:
            return  # a step of the verification's own container: its frame is enough
        mark = self._terminal.paint("ok", "green") if ok else self._terminal.paint("failed", "red")
        self._line(f"{TITLES.get(name, name):<28} {mark:<6} {milliseconds:8.0f} ms")

    def agent_event(self, event: dict[str, Any]) -> None:
        """Write what the agent does; its texts are escaped."""
        paint = self._terminal.paint
        match event.get("type"):
            case "agent.started":
                self._line(
                    f"  agent {one_line(event.get('agent'), limit=30)} on {one_line(event.get('model'), limit=60)}"
                )
            case "tool.call":
                name, preview = one_line(event.get("name"), limit=30), one_line(event.get("preview", ""))
                self._line(f"  {paint('→', 'blue')} {name}  {preview}")
            case "tool.result" if event.get("ok") is False:
                self._line(f"    {paint('!', 'yellow')} {one_line(event.get('preview', ''))}")
            case "message":
                text = one_line(event.get("text", ""), limit=160)
                if text:
                    self._line(f"  {paint('“', 'dim')}{text}{paint('”', 'dim')}")
            case "output":
                self._line(f"  {paint('│', 'dim')} {one_line(event.get('text', ''), limit=160)}")
            case "warning" | "error" as kind:
                colour = "yellow" if kind == "warning" else "red"
                self._line(f"  {paint(kind, colour)} {one_line(event.get('text', ''), limit=200)}")
            case _:
                pass

    def note(self, text: str) -> None:
        """Write a note."""
        self._line(f"{self._terminal.paint('note', 'yellow')} {safe(text, limit=600)}")


def summary(terminal: Terminal, report: Report) -> None:
    """Write what a person reads in five seconds: outcome, verdicts, score, branch, what to type next."""
    good = report.outcome == "accepted"
    title = report.outcome.upper().replace("_", " ")
    terminal.line()
    terminal.line(f"{terminal.paint(title, 'bold', 'green' if good else 'red')}  {safe(report.reason, limit=300)}")
    _judges(terminal, report)
    _facts(terminal, report)
    _next(terminal, report)


def _judges(terminal: Terminal, report: Report) -> None:
    for teacher in ("cto", "coo"):
        verdict, score = report.verdicts[teacher], report.scores[teacher]
        if verdict:
            shown = "" if score is None else f"  score {score:g}"
            terminal.line(f"  {teacher.upper()}  {terminal.paint(verdict, MARKS.get(verdict, 'dim'))}{shown}")
        for finding in [f for f in report.findings if f.get("teacher") == teacher][:6]:
            severity = one_line(finding.get("severity", ""), limit=10)
            where = terminal.paint(one_line(finding.get("citation", ""), limit=60), "dim")
            terminal.line(f"       {severity:<8} {one_line(finding.get('description', ''), limit=140)}  {where}")


def _facts(terminal: Terminal, report: Report) -> None:
    check, stat, use = report.verification, report.diffstat, report.usage["student"]
    command = f"  `{one_line(check['command'], limit=80)}`" if check.get("command") else ""
    before = f"  (on base: {check['baseline'].replace('_', ' ')})" if check.get("baseline") else ""
    terminal.line(f"  check {check['status'].replace('_', ' ')}{command}{before}")
    if stat["files"]:
        names = one_line(", ".join(report.files_changed[:4]), limit=100)
        terminal.line(f"  diff  {stat['files']} file(s), +{stat['additions']} -{stat['deletions']}: {names}")
    cost = "unknown" if use["cost_usd"] is None else f"${use['cost_usd']:.4f}"
    tokens = f"{use['prompt_tokens']} + {use['completion_tokens']} tokens"
    terminal.line(f"  used  {use['calls']} call(s), {tokens}, cost {cost}")
    if report.score:
        terminal.line(f"  score of student-{report.role}: {report.score['old']:g} → {report.score['new']:g}")
    if report.rehearsal:
        mark = terminal.paint("rehearsal", "yellow")
        terminal.line(f"  {mark}: a scripted model answered; this is no judgment of real work")
    terminal.line(f"  left behind: {'nothing' if report.cleanup == 'done' else report.cleanup}")


def _next(terminal: Terminal, report: Report) -> None:
    repo, line = safe(report.repo, limit=200), terminal.line
    if report.branch:
        line(f"  branch {terminal.paint(report.branch, 'bold')}")
        line(f"    look:  git -C '{repo}' diff {report.base_sha[:12]} {report.branch}    or: school diff {report.bead}")
        trial = " --rehearsal" if report.rehearsal else ""
        line(f"    take:  school approve {report.bead} --sha {str(report.head_sha)[:12]} --apply{trial}")
        line("           or: school reject, school fix")
    elif report.head_sha and report.head_sha != report.base_sha:
        line(f"  its work is kept at refs/school/{report.bead}")
        line(f"    look:  school diff {report.bead}    school show {report.bead}")
    if report.outcome == "rejected":
        line(f"    again: school fix {report.bead} --note '…'")
    if report.outcome not in {"accepted", "rejected"}:
        line(f"    why:   school logs {report.bead}")
