"""The way of one bead, in the order it happens. Read ``_work`` first; each method below it is one stretch of the way.

Rules that hold throughout: the lease is held while a bead is driven; the ledger's intent comes before each effect
(``journal.step``); whatever is raised, ``finally`` removes every trace, and the bead ends with a typed outcome. Each
stretch can be entered from the ledger by a principal that adopts the bead, and done twice.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from orchestrator import bookbag, layout
from orchestrator.engine.base import Lost, State
from orchestrator.errors import (
    BookbagError,
    CancelledError,
    ContainerNotFoundError,
    EngineError,
    GatewayError,
    GitError,
    LedgerError,
    SandboxError,
    SchoolError,
)
from orchestrator.faults import fault_point
from orchestrator.git.landing import create_branch
from orchestrator.leaf.brief import TEXT_ROLES
from orchestrator.leaf.ending import classify
from orchestrator.leaf.outbox import read_file, read_json
from orchestrator.leaf.run import RunRecord, removed
from orchestrator.leaf.student import StudentLeaf
from orchestrator.principal import removal
from orchestrator.principal.acceptance import decide
from orchestrator.principal.adoption import adopted_ending, leaf_container, record_to_json, unseen_end
from orchestrator.principal.cancel import Cancellation
from orchestrator.principal.checking import verify
from orchestrator.principal.closing import Closing
from orchestrator.principal.handover import bag_of, write_work_evidence
from orchestrator.principal.janitor import start_janitor
from orchestrator.principal.journal import BeadJournal, Listener
from orchestrator.principal.judging import review
from orchestrator.principal.lease import Lease, bead_lease_path, slot
from orchestrator.principal.work import Stage, Work, new_report, plan_of, prepared_to_json
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.principal.handoff import Verdicts
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.prepare import Prepared
    from orchestrator.principal.report import Report
    from orchestrator.principal.school import School

MAX_OUTPUT = 200_000
"""Characters of a student's final text that are kept."""

LEASE_PATIENCE = 0.5
"""Seconds; who looks whether a bead is driven holds its lock for an instant."""


class Conductor:
    """Drives beads of one home, one at a time; several conductors run side by side in processes of their own."""

    def __init__(self, school: School, ledger: Ledger, cancellation: Cancellation | None = None) -> None:
        self._school = school
        self._ledger = ledger
        self._cancellation = cancellation or Cancellation()
        self._closing = Closing(school, ledger, self._cancellation)
        self._dirs = removal.dirs_of(school.home)

    def drive(self, prepared: Prepared, listener: Listener) -> Report:
        """Take a prepared bead all the way; always returns a report with a typed outcome.

        Raises:
            LedgerError: the ledger can't be written: nothing was started, or the end could not be noted.
        """
        home, settings, bead = self._school.home, self._school.settings, prepared.bead

        def waiting() -> None:
            listener.note(f"waiting: {settings.max_beads} beads run already (SCHOOL_MAX_BEADS)")

        with slot(home.leases, "bead", settings.max_beads, on_wait=waiting):
            lease = Lease.take(bead_lease_path(home.leases, bead), patience=LEASE_PATIENCE)
            if lease is None:
                raise LedgerError(f"Somebody drives bead {bead} already.", next_step="Choose another bead id.")
            try:
                created = self._ledger.open_bead(
                    bead, repo=str(prepared.repo.root), base_sha=prepared.base_sha, data=prepared_to_json(prepared)
                )
                fault_point("opened")
                if settings.janitor:
                    start_janitor(home)  # the row comes first: a janitor that is about to end looks once more
                journal = BeadJournal(home, self._ledger, bead, listener)
                work = Work(prepared, journal, new_report(prepared), created)
                for note in prepared.notes:
                    journal.note(note)
                return self._conduct(work, self._work)
            finally:
                lease.release(forget=True)

    def go_on(self, work: Work) -> Report:
        """Take an adopted bead from where its principal left it to its end. The caller holds the lease.

        Raises:
            LedgerError: the ledger can't be written.
        """
        return self._conduct(work, self._work)

    def end(self, work: Work, outcome: Outcome, reason: str) -> Report:
        """End an adopted bead now, with this outcome unless it has one. The caller holds the lease.

        Raises:
            LedgerError: the ledger can't be written.
        """
        return self._conduct(work, lambda w: self._closing.end(w, outcome, reason))

    def _conduct(self, work: Work, way: Callable[[Work], None]) -> Report:
        report = work.report
        started = time.perf_counter()
        try:
            with self._cancellation.listening(self._school.home, report.bead):
                if report.outcome:  # its principal died while it removed
                    self._cancellation.shield()
                    self._closing.score(work)
                else:
                    way(work)
        except (CancelledError, KeyboardInterrupt):
            self._closing.end(work, Outcome.CANCELLED, "cancelled")
        except (SandboxError, GitError) as error:
            self._closing.end(work, Outcome.SANDBOX_UNAVAILABLE, _text(error))
        except GatewayError as error:
            self._closing.end(work, Outcome.GATEWAY_DENIED, _text(error))
        except BookbagError as error:
            self._closing.end(work, Outcome.NOT_REVIEWED, _text(error))
        finally:
            self._finish(work, started)
        return report

    def _finish(self, work: Work, started: float) -> None:
        """Remove and close, whatever came before; what the ledger can't take now, the janitor writes later."""
        report = work.report
        self._cancellation.shield()
        try:
            if not report.outcome:  # an error of ours that nobody foresaw: it passes through, the traces still go
                self._closing.end(work, Outcome.LOST, "the principal failed")
        finally:
            self._closing.dispose(work)
            timings = {**report.timings, **work.journal.timings}
            report.timings = {**timings, "total": round((time.perf_counter() - started) * 1000, 1)}
            report.diagnostics += work.journal.notes
            self._closing.close(work)

    # -- the way ---------------------------------------------------------------------------------------------------

    def _work(self, work: Work) -> None:
        if work.stage < Stage.BOOTED:
            if work.resumed:
                self._closing.end(work, Outcome.LOST, "its principal died before the student was started")
                return
            self._open_grant(work)
            self._boot(work)
        if work.stage < Stage.RAN:
            self._run_student(work)
        if work.stage < Stage.FROZEN:
            self._freeze(work)
        if work.ending is None or work.ending.outcome is not None:
            ending = work.ending
            self._closing.end(
                work, (ending and ending.outcome) or Outcome.LOST, ending.reason if ending else "never ran"
            )
            return
        if not self._something_to_review(work):
            return
        if work.stage < Stage.VERIFIED:
            verify(work, self._school, self._ledger)
            self._reached(work, Stage.VERIFIED)
        if work.stage < Stage.HANDED_OVER:
            self._hand_over(work)
        verdicts = review(work, self._school, self._dirs)
        self._accept(work, verdicts)

    def _reached(self, work: Work, stage: Stage) -> None:
        """Note that the later stretches can be entered without the earlier ones."""
        work.stage = stage
        self._ledger.update_bead(
            work.report.bead, event="stage", head_sha=work.report.head_sha, data={"progress": work.to_json()}
        )
        fault_point(f"stage.{stage.name.lower()}")

    def _open_grant(self, work: Work) -> None:
        """Hand the gate a key for this bead alone; an agent that needs no model gets one too: it is its meter."""
        prepared = work.prepared
        with work.journal.step("grant", models=[prepared.model]):
            work.grant_open = True  # before the effect: closing what was never opened is harmless
            self._school.open_grant(
                prepared.bead,
                models=[prepared.model],
                limits=prepared.budget.to_gate(),
                deadline=time.time() + prepared.budget.wall + 120,
                egress=prepared.egress,
            )

    def _leaf(self, work: Work) -> StudentLeaf:
        if work.leaf is None:
            school, prepared = self._school, work.prepared
            work.leaf = StudentLeaf(
                school.home,
                school.engine,
                prepared.repo,
                plan_of(prepared, school),
                work.journal,
                starting=school.starting,
            )
        return work.leaf

    def _boot(self, work: Work) -> None:
        leaf = self._leaf(work)
        leaf.boot()
        leaf.write_brief()
        self._reached(work, Stage.BOOTED)

    def _run_student(self, work: Work) -> None:
        """See the student to its end, and take how it ended: from the engine, never from the student's own words."""
        record = self._adopted_run(work) if work.resumed else self._leaf(work).run_task()
        if record is not None and record.removal is not None and not removed(record):
            raise EngineError(
                f"The container {work.prepared.leaf_name} could not be removed.",
                next_step="The janitor tries again; nothing is read from the worktree before.",
            )
        if record is not None and isinstance(record.result, Lost) and (seen := self._kept_ending(work)):
            record.result = seen.result
        work.record = record
        if record is not None:
            self._ledger.update_bead(work.report.bead, event="seen", data={"seen": record_to_json(record)})
        usage = self._closing.close_grant(work)
        self._read_outbox(work)
        if record is None:
            work.ending = unseen_end(self._leaf(work).read_outbox().outbox)
        else:
            work.ending = classify(
                record.result,
                disk_exceeded=record.disk_exceeded,
                deadline_passed=record.deadline_passed,
                usage=usage,
                agent_reason=str(record.finished.get("reason") or ""),
            )
        self._reached(work, Stage.RAN)

    def _adopted_run(self, work: Work) -> RunRecord | None:
        """Wait for a student that still runs, or find out how it ended; None: nobody saw it."""
        bead = work.prepared.bead
        if work.seen is not None:
            self._leaf(work).adopt(None)
            return work.seen
        leaf, container = self._leaf(work), leaf_container(self._school.engine, self._school.home, bead)
        leaf.adopt(container)
        if container is not None and container.state is State.CREATED:
            return RunRecord(Lost("never started: its principal died before"))
        if container is not None:
            work.journal.note(f"adopted: the student's container is {container.state}")
            with contextlib.suppress(ContainerNotFoundError):  # it ended between the two looks
                return leaf.run_task()
        return self._kept_ending(work)

    def _kept_ending(self, work: Work) -> RunRecord | None:
        """Return how the engine remembers the student's end; it was away, or nobody listened."""
        school = self._school
        return adopted_ending(school.engine, school.home, work.prepared.bead, since=work.created)

    def _read_outbox(self, work: Work) -> None:
        """Take the student's words, as claims: they decide nothing."""
        outbox = self._leaf(work).read_outbox().outbox
        said = read_json(outbox, layout.OUTCOME_FILE) or {}
        last = work.record.last_message if work.record else ""
        work.output = str(said.get("output") or last or "")[:MAX_OUTPUT]
        data = read_file(outbox, layout.SUBMISSION_FILE)
        if data is not None:
            try:
                work.submission, dropped = bookbag.check_submission(data, work.prepared.bead)
            except BookbagError as error:
                work.journal.note(f"the student's submission is refused: {error.message}")
            else:
                if dropped:
                    work.journal.note(
                        f"fields of the submission that are not a student's were dropped: {', '.join(dropped)}"
                    )
        work.report.output = work.output

    def _freeze(self, work: Work) -> None:
        """Commit whatever the student left, whatever the outcome: work done is never lost."""
        leaf, prepared = self._adopt_if_resumed(work), work.prepared
        message = removal.commit_message(prepared.bead, prepared.request.task)
        frozen = leaf.freeze(message, when=int(work.created))
        work.frozen = frozen
        for notice in frozen.notices:
            work.journal.note(f"{notice.path}: {notice.detail}" if notice.path else notice.detail)
        report = work.report
        report.files_changed = [change.path for change in frozen.files_changed]
        report.diffstat = {
            "files": len(frozen.files_changed),
            "additions": sum(change.additions for change in frozen.files_changed),
            "deletions": sum(change.deletions for change in frozen.files_changed),
        }
        if frozen.head_sha is not None:
            leaf.keep(frozen.head_sha)
            report.head_sha = frozen.head_sha
        self._reached(work, Stage.FROZEN)

    def _adopt_if_resumed(self, work: Work) -> StudentLeaf:
        """Return the leaf, its folders taken over when another principal made them."""
        if work.leaf is None:
            self._leaf(work).adopt(None)
        return self._leaf(work)

    def _something_to_review(self, work: Work) -> bool:
        """R-25 and DESIGN, step 7: nothing handed in is a failed task; text alone is a product of some roles only."""
        role = work.prepared.request.role
        if work.report.head_sha is not None:
            return True
        if role in TEXT_ROLES and work.output.strip():
            work.report.head_sha = work.prepared.base_sha
            return True
        missing = "neither a change nor an answer" if role in TEXT_ROLES else "no change"
        self._closing.end(work, Outcome.TASK_FAILED, f"the student handed in {missing}")
        return False

    def _hand_over(self, work: Work) -> None:
        """Write the evidence, then the bookbag; the flag comes after them (R-16)."""
        head = work.report.head_sha or work.prepared.base_sha
        with work.journal.step("evidence"):
            work.evidence_sha256 = write_work_evidence(self._school.home, work, head)
        bag = bag_of(work, head)
        with work.journal.step("bookbag"):
            bookbag.write_bookbag(work.prepared.bead, bag, dirs=self._dirs)
            work.report.state = bookbag.WRITTEN
        if work.leaf is not None:
            work.leaf.write_output({**bag, "events": work.journal.notes, "outcome": "completed"})
        self._reached(work, Stage.HANDED_OVER)

    def _accept(self, work: Work, verdicts: Verdicts) -> None:
        """Compute R-39, write what is the principal's to write, and give an accepted bead its branch."""
        prepared, report = work.prepared, work.report
        if verdicts.missing:
            self._closing.end(
                work, Outcome.NOT_REVIEWED, f"no verdict of {', '.join(t.upper() for t in verdicts.missing)} counts"
            )
            return
        decision = decide(verdicts.bag, work.verification.status)
        with work.journal.step("acceptance", accepted=decision.accepted, reasons=list(decision.reasons)):
            timeout = self._school.settings.lock_timeout
            update = {"accepted": decision.accepted}
            if bookbag.locked_update_bookbag(prepared.bead, update, dirs=self._dirs, lock_timeout=timeout) is None:
                raise BookbagError(f"The bookbag of {prepared.bead} could not be locked within {timeout:g} s.")
        report.accepted = decision.accepted
        if decision.accepted and report.head_sha not in {None, prepared.base_sha}:
            with work.journal.step("branch", name=prepared.branch, sha=report.head_sha):
                create_branch(prepared.repo, prepared.branch, str(report.head_sha))
            report.branch = prepared.branch
        outcome = Outcome.ACCEPTED if decision.accepted else Outcome.REJECTED
        self._closing.end(work, outcome, "; ".join(decision.reasons) or "both judges passed it")


def _text(error: SchoolError) -> str:
    return error.message + (f" {error.next_step}" if error.next_step else "")
