"""Having a bead judged, and taking the verdicts that count into its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator import bookbag
from orchestrator.engine.retry import patiently
from orchestrator.leaf.run import ENGINE_PATIENCE
from orchestrator.principal.handoff import Expected, Verdicts, check_seals, wait_for_verdicts
from orchestrator.principal.report import usage_of

if TYPE_CHECKING:
    from orchestrator.principal.school import School
    from orchestrator.principal.work import Work


def review(work: Work, school: School, dirs: bookbag.Dirs) -> Verdicts:
    """Have it judged by the teachers, or in this process when fewer than two of them are there (R-14).

    Raises:
        SandboxError: the engine can't be asked which teachers are there.
        BookbagError: the bookbag can't be read.
    """
    prepared, journal = work.prepared, work.journal
    bead = prepared.bead
    expected = Expected(bead, work.report.head_sha or "", work.evidence_sha256, school.seal_keys())
    mode = prepared.request.review
    if mode == "async":
        for attempt in patiently(ENGINE_PATIENCE):
            with attempt:
                absent = school.absent_teachers()
        if absent:
            journal.note(f"{' and '.join(absent)} not healthy: the review runs in this process")
            mode = "sync"
    verdicts: Verdicts | None = None
    if mode == "async":
        with journal.step("signal"):
            bookbag.BookbagSignal(bead, dirs=dirs).ready()
        with journal.step("review", mode="async"):
            verdicts = wait_for_verdicts(expected, dirs, school.settings)
        if verdicts.missing and not verdicts.parked and not verdicts.problems:
            journal.note(f"no verdict from {', '.join(verdicts.missing)} in time: the review runs in this process")
            mode = "sync"
    if mode == "sync":
        bag = bookbag.read_bookbag(bead, dirs=dirs) or {}
        missing = tuple(check_seals(bag, expected))  # an adopted bead may have one already
        with journal.step("review_here", mode="sync", teachers=list(missing)):
            problems = school.review_here(bead, missing, dirs)
        bag = bookbag.read_bookbag(bead, dirs=dirs) or {}
        bad = check_seals(bag, expected)
        verdicts = Verdicts(bag, tuple(bad), problems, tuple(r for r in bad.values() if r), picked_up=True)
    assert verdicts is not None  # noqa: S101 - one of the two ways was taken
    work.report.review = mode
    _take_verdicts(work, school, verdicts)
    bookbag.BookbagSignal(bead, dirs=dirs).clear()
    return verdicts


def _take_verdicts(work: Work, school: School, verdicts: Verdicts) -> None:
    report, bag = work.report, verdicts.bag
    report.state = str(bag.get("state") or report.state)
    report.findings = []
    for teacher in ("cto", "coo"):
        if teacher in verdicts.missing:
            continue
        report.verdicts[teacher] = bookbag.verdict_of(bag, teacher)
        report.scores[teacher] = bag.get(f"{teacher}_score")
        report.findings += [{**finding, "teacher": teacher} for finding in bag.get(f"{teacher}_findings") or []]
        report.usage[teacher] = usage_of(school.teacher_usage(teacher, work.prepared.bead))
    for text in (*verdicts.problems, *(f"{t.upper()} gave up: {why}" for t, why in verdicts.parked.items())):
        work.journal.note(text)
