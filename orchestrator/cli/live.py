"""The live view of a bead on a terminal: each step with its time, the agent's tool calls as they happen."""

from __future__ import annotations

import threading
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
TEXT_ROLES = frozenset({"searcher", "reviewer", "browser"})
MARKS = {"PASS": "green", "FAIL": "red"}


LONG = frozenset({"run", "verify", "baseline", "review", "review_here"})
"""Steps that are announced, and that say now and then that they still go on."""

HEARTBEAT = 10.0
"""Seconds of silence after which a long step says so."""

SHOWN_LINES = 300
"""Lines of commands' output that are shown; all of them are in the bead's log."""


class Live:
    """A listener that writes to people. One line a step, so that it reads the same in a CI log.

    ``at`` is the time of what is shown (epoch seconds); None is now. ``school logs`` sets it to replay a bead.
    """

    def __init__(self, terminal: Terminal, *, heartbeat: bool = True) -> None:
        self._terminal = terminal
        self.at: float | None = None
        self._started: float | None = None if not heartbeat else time.time()
        self._heartbeat = heartbeat
        self._last = time.monotonic()
        self._long: threading.Event | None = None
        self._output = 0
        self._repeated = ("", 0)

    def _line(self, text: str) -> None:
        self._tell_repeats()
        self._write(text)

    def _write(self, text: str) -> None:
        now = time.time() if self.at is None else self.at
        self._started = now if self._started is None else self._started
        self._last = time.monotonic()
        self._terminal.line(f"{self._terminal.paint(f'{now - self._started:6.1f}s', 'dim')}  {text}")

    def step_started(self, name: str) -> None:
        """Announce the steps that take long."""
        if name in LONG:
            self._line(f"{TITLES.get(name, name)} …")
            if self._heartbeat:
                self._long = threading.Event()
                threading.Thread(target=self._fill, args=(TITLES.get(name, name), self._long), daemon=True).start()

    def step_ended(self, name: str, milliseconds: float, *, ok: bool) -> None:
        """Write a finished step and its time."""
        if "." in name:
            return  # a step of the verification's own container: its frame is enough
        if name in LONG and self._long is not None:
            self._long.set()
        # of a long step "ok" would say too much: what came out of it is said at the end
        word = "done" if name in LONG else "ok"
        mark = self._terminal.paint(f"{word:<6}", "green") if ok else self._terminal.paint("failed", "red")
        self._line(f"{TITLES.get(name, name):<28} {mark} {milliseconds:8.0f} ms")

    def _fill(self, title: str, ended: threading.Event) -> None:
        started = time.monotonic()
        while not ended.wait(1.0):
            if time.monotonic() - self._last >= HEARTBEAT:
                self._write(f"{title} … {time.monotonic() - started:.0f} s")

    def agent_event(self, event: dict[str, Any]) -> None:
        """Write what the agent does; its texts are escaped."""
        paint = self._terminal.paint
        match event.get("type"):
            case "agent.started" if event.get("agent") != "command":
                agent, model = one_line(event.get("agent"), limit=30), one_line(event.get("model"), limit=60)
                self._line(f"  agent {agent} on {model}")
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
                self._show_output(one_line(event.get("text", ""), limit=160))
            case "warning" | "error" as kind:
                colour = "yellow" if kind == "warning" else "red"
                self._line(f"  {paint(kind, colour)} {one_line(event.get('text', ''), limit=200)}")
            case _:
                pass

    def _show_output(self, text: str) -> None:
        """Show a line of a command's output: equal ones once, and not without end."""
        before, count = self._repeated
        if text == before:
            self._repeated = (before, count + 1)
            return
        self._output += 1
        if self._output < SHOWN_LINES:
            self._line(f"  {self._terminal.paint('│', 'dim')} {text}")
        elif self._output == SHOWN_LINES:
            self._line("  … more output is in school logs")
        self._repeated = (text, 0)

    def _tell_repeats(self) -> None:
        text, count = self._repeated
        self._repeated = ("", 0)
        if count:
            self._write(f"  {self._terminal.paint('│', 'dim')} … {count} more like it" if text else "")

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
    _answer(terminal, report)
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
    ended = f", exit code {check['exit_code']}" if check.get("exit_code") else ""
    before = f"  (on base: {check['baseline'].replace('_', ' ')})" if check.get("baseline") else ""
    terminal.line(f"  check {check['status'].replace('_', ' ')}{command}{ended}{before}")
    if check["status"] in {"failed", "could_not_run"}:
        for text in check["log"].strip().splitlines()[-4:]:
            terminal.line(f"        {terminal.paint('│', 'dim')} {one_line(text, limit=140)}")
    if stat["files"]:
        names = one_line(", ".join(report.files_changed[:4]), limit=100)
        terminal.line(f"  diff  {stat['files']} file(s), +{stat['additions']} -{stat['deletions']}: {names}")
    cost = "unknown" if use["cost_usd"] is None else f"${use['cost_usd']:.4f}"
    tokens = f"{use['prompt_tokens']} + {use['completion_tokens']} tokens"
    terminal.line(f"  used  {use['calls']} call(s), {tokens}, cost {cost}")
    if report.score:
        whose = f"student-{report.role}" + (" on rehearsal, kept apart" if report.rehearsal else "")
        terminal.line(f"  score of {whose}: {report.score['old']:g} → {report.score['new']:g}")
    if report.rehearsal:
        mark = terminal.paint("rehearsal", "yellow")
        terminal.line(f"  {mark}: a scripted model answered; this is no judgment of real work")
    terminal.line(f"  left behind: {'nothing' if report.cleanup == 'done' else report.cleanup}")


def _answer(terminal: Terminal, report: Report) -> None:
    """Show what a role whose product is text handed in."""
    if report.role not in TEXT_ROLES or not report.output.strip():
        return
    lines = safe(report.output.strip(), limit=6000, lines=True).splitlines()
    terminal.line("  answer (the student's words):")
    for text in lines[:25]:
        terminal.line(f"    {text}")
    if len(lines) > 25:
        terminal.line(f"    … {len(lines) - 25} more lines: school show {report.bead}")


def _next(terminal: Terminal, report: Report) -> None:
    repo, line = safe(report.repo, limit=200), terminal.line
    if report.branch:
        line(f"  branch {terminal.paint(report.branch, 'bold')}")
        # the ref refs/school/<bead> keeps the reviewed commit; "heads/" says that the branch is meant, not that ref
        branch = f"heads/{report.branch}"
        line(f"    look:  git -C '{repo}' diff {report.base_sha[:12]} {branch}    or: school diff {report.bead}")
        trial = " --rehearsal" if report.rehearsal else ""
        line(f"    take:  school approve {report.bead} --sha {str(report.head_sha)[:12]} --apply{trial}")
        line(f"           or: git -C '{repo}' merge {branch}    or: school reject, school fix")
    elif report.head_sha and report.head_sha != report.base_sha:
        line(f"  its work is kept at refs/school/{report.bead}")
        line(f"    look:  school diff {report.bead}    school show {report.bead}")
    if report.outcome == "rejected":
        line(f"    again: school fix {report.bead} --note '…'")
    if report.outcome not in {"accepted", "rejected"}:
        line(f"    why:   school logs {report.bead}")
