"""The way of one bead, in the order it happens. Read ``_work`` first; each method below it is one stretch of the way.

Rules that hold throughout: the lease is held while a bead is driven; the ledger's intent comes before each effect
(``journal.step``); whatever is raised, ``finally`` disposes of leaf and grant, and the bead ends with a typed outcome.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag, layout
from orchestrator.errors import (
    BookbagError,
    CancelledError,
    EngineError,
    GatewayError,
    GitError,
    LedgerError,
    SandboxError,
    SchoolError,
)
from orchestrator.git.blobs import read_file_at
from orchestrator.git.landing import create_branch, diff
from orchestrator.git.repository import list_tree
from orchestrator.leaf.brief import TEXT_ROLES, Brief
from orchestrator.leaf.ending import Ending, classify
from orchestrator.leaf.evidence import neighbours_of, write_evidence
from orchestrator.leaf.outbox import read_file, read_json
from orchestrator.leaf.student import LeafPlan, StudentLeaf
from orchestrator.leaf.verify import FAILED, Verification, Verifier
from orchestrator.principal.acceptance import decide
from orchestrator.principal.handoff import Expected, Verdicts, check_seals, wait_for_verdicts
from orchestrator.principal.journal import BeadJournal, Listener
from orchestrator.principal.lease import Lease, bead_lease_path, slot
from orchestrator.principal.report import Report, usage_of
from orchestrator.principal.scoring import evaluate_and_update
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from orchestrator.git.freeze import FrozenTree
    from orchestrator.leaf.run import RunRecord
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.prepare import Prepared
    from orchestrator.principal.school import School

MAX_OUTPUT = 200_000
"""Characters of a student's final text that are kept."""


@dataclass(slots=True)
class Work:
    """What is known of a bead while it is driven."""

    prepared: Prepared
    journal: BeadJournal
    report: Report
    leaf: StudentLeaf | None = None
    grant_open: bool = False
    record: RunRecord | None = None
    ending: Ending | None = None
    frozen: FrozenTree | None = None
    output: str = ""
    submission: dict[str, Any] = field(default_factory=dict)
    verification: Verification = field(default_factory=Verification)
    evidence_sha256: str = ""


class Conductor:
    """Drives beads of one home, one at a time; several conductors run side by side in processes of their own."""

    def __init__(self, school: School, ledger: Ledger) -> None:
        self._school = school
        self._ledger = ledger
        self._dirs = bookbag.Dirs(school.home.bookbags, school.home.signals, school.home.locks)

    def drive(self, prepared: Prepared, listener: Listener) -> Report:
        """Take a prepared bead all the way; always returns a report with a typed outcome.

        Raises:
            LedgerError: the ledger can't be written: nothing was started, or the end could not be noted.
        """
        home, settings = self._school.home, self._school.settings

        def waiting() -> None:
            listener.note(f"waiting: {settings.max_beads} beads run already (SCHOOL_MAX_BEADS)")

        with slot(home.leases, "bead", settings.max_beads, on_wait=waiting):
            lease = Lease.take(bead_lease_path(home.leases, prepared.bead))
            if lease is None:
                raise LedgerError(f"Somebody drives bead {prepared.bead} already.", next_step="Choose another bead id.")
            try:
                return self._drive(prepared, listener)
            finally:
                lease.release(forget=True)

    def _drive(self, prepared: Prepared, listener: Listener) -> Report:
        self._ledger.open_bead(
            prepared.bead, repo=str(prepared.repo.root), base_sha=prepared.base_sha, data=prepared.to_json()
        )
        journal = BeadJournal(self._school.home, self._ledger, prepared.bead, listener)
        report = Report(
            bead=prepared.bead,
            task=prepared.request.task,
            role=prepared.request.role,
            agent=prepared.agent,
            model=prepared.model,
            rehearsal=prepared.rehearsal,
            repo=str(prepared.repo.root),
            base_sha=prepared.base_sha,
        )
        work = Work(prepared, journal, report)
        for note in prepared.notes:
            journal.note(note)
        started = time.perf_counter()
        try:
            self._work(work)
        except (CancelledError, KeyboardInterrupt):
            self._end(work, Outcome.CANCELLED, "cancelled")
        except (SandboxError, GitError) as error:
            self._end(work, Outcome.SANDBOX_UNAVAILABLE, _text(error))
        except GatewayError as error:
            self._end(work, Outcome.GATEWAY_DENIED, _text(error))
        except BookbagError as error:
            self._end(work, Outcome.NOT_REVIEWED, _text(error))
        finally:
            if not report.outcome:  # an error of ours that nobody foresaw: it passes through, the traces still go
                self._end(work, Outcome.LOST, "the principal failed")
            self._dispose(work)
            report.timings = {**journal.timings, "total": round((time.perf_counter() - started) * 1000, 1)}
            report.diagnostics = list(journal.notes)
            self._close(work)
        return report

    # -- the way ---------------------------------------------------------------------------------------------------

    def _work(self, work: Work) -> None:
        self._open_grant(work)
        self._run_student(work)
        self._freeze(work)
        if work.ending is None or work.ending.outcome is not None:
            ending = work.ending
            self._end(work, (ending and ending.outcome) or Outcome.LOST, ending.reason if ending else "never ran")
            return
        if not self._something_to_review(work):
            return
        self._verify(work)
        self._hand_over(work)
        verdicts = self._review(work)
        self._accept(work, verdicts)

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
            )

    def _run_student(self, work: Work) -> None:
        prepared, school = work.prepared, self._school
        plan = LeafPlan(
            bead=prepared.bead,
            name=prepared.leaf_name,
            base_sha=prepared.base_sha,
            image=prepared.image,
            limits=prepared.limits,
            brief=self._brief(prepared),
            soul=prepared.soul,
            instructions=prepared.instructions,
            gate=school.grant_folder(prepared.bead),
            objects_mode=prepared.objects_mode,
            userns_mode=school.userns_mode,
            keep=prepared.request.keep,
        )
        leaf = StudentLeaf(school.home, school.engine, prepared.repo, plan, work.journal, starting=school.starting)
        work.leaf = leaf
        leaf.boot()
        leaf.write_brief()
        work.record = leaf.run_task()
        usage = self._close_grant(work)
        work.ending = classify(
            work.record.result,
            disk_exceeded=work.record.disk_exceeded,
            deadline_passed=work.record.deadline_passed,
            usage=usage,
            agent_reason=str(work.record.finished.get("reason") or ""),
        )
        self._read_outbox(work, leaf)

    def _brief(self, prepared: Prepared) -> Brief:
        request = prepared.request
        return Brief(
            bead=prepared.bead,
            role=request.role,
            domain=request.domain,
            task=request.task,
            difficulty=request.difficulty,
            agent=prepared.agent,
            model=prepared.model,
            command=request.command,
            verification=prepared.verify or "",
            # one turn more than calls: the budget is for the gate to stop, which is believed
            limits={"wall_s": prepared.budget.wall, "turns": prepared.budget.calls + 1},
            context=request.context,
        )

    def _read_outbox(self, work: Work, leaf: StudentLeaf) -> None:
        """Take the student's words, as claims: they decide nothing."""
        outbox = leaf.read_outbox().outbox
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
        leaf, prepared = work.leaf, work.prepared
        if leaf is None or work.record is None:
            return
        frozen = leaf.freeze(_commit_message(prepared.bead, prepared.request.task))
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
            self._ledger.update_bead(prepared.bead, event="frozen", head_sha=frozen.head_sha)

    def _something_to_review(self, work: Work) -> bool:
        """R-25 and DESIGN, step 7: nothing handed in is a failed task; text alone is a product of some roles only."""
        role = work.prepared.request.role
        if work.report.head_sha is not None:
            return True
        if role in TEXT_ROLES and work.output.strip():
            work.report.head_sha = work.prepared.base_sha
            self._ledger.update_bead(work.prepared.bead, event="frozen", head_sha=work.prepared.base_sha)
            return True
        missing = "neither a change nor an answer" if role in TEXT_ROLES else "no change"
        self._end(work, Outcome.TASK_FAILED, f"the student handed in {missing}")
        return False

    def _verify(self, work: Work) -> None:
        prepared, head = work.prepared, work.report.head_sha
        if not prepared.verify or work.leaf is None or head is None:
            work.journal.note("verification is not configured (--verify, or [verify] in .school.toml)")
            return
        verifier = Verifier(
            home=self._school.home,
            engine=self._school.engine,
            repo=prepared.repo,
            student=work.leaf.plan,
            command=prepared.verify,
            timeout=self._school.settings.verify_timeout,
            journal=work.journal.scoped("verify"),
            starting=self._school.starting,
        )
        with work.journal.step("verify", command=prepared.verify, sha=head):
            result = verifier.run(head, label="v")
        if result.status == FAILED and head != prepared.base_sha:
            result = self._with_baseline(work, verifier, result)
        work.verification = result
        work.report.verification = result.to_json()

    def _with_baseline(self, work: Work, verifier: Verifier, result: Verification) -> Verification:
        """Say whether the check failed before the student came."""
        base = work.prepared.base_sha
        key = verifier.baseline_key(base)
        known = self._ledger.baseline(key)
        if known is None:
            with work.journal.step("baseline", sha=base):
                before = verifier.run(base, label="b")
            self._ledger.keep_baseline(key, before.status, before.exit_code)
            known = (before.status, before.exit_code)
        return Verification(result.status, result.command, result.exit_code, result.log, known[0], result.reason)

    def _hand_over(self, work: Work) -> None:
        """Write the evidence, then the bookbag, then the flag (R-16): never the other way round."""
        prepared, report = work.prepared, work.report
        head = report.head_sha or prepared.base_sha
        with work.journal.step("evidence"):
            work.evidence_sha256 = self._write_evidence(work, head)
        said: dict[str, Any] = {
            name: work.submission[name] for name in ("ac_met", "blockers") if name in work.submission
        }
        bag: dict[str, Any] = {
            **said,
            "task": prepared.request.task,
            "student": prepared.request.role,
            "domain": prepared.request.domain,
            "difficulty": prepared.request.difficulty,
            "output": work.output,
            "summary": str(work.submission.get("summary") or "")[:4000],
            "repo": str(prepared.repo.root),
            "branch": "",
            "base_sha": prepared.base_sha,
            "head_sha": head,
            "files_changed": report.files_changed,
            "verification": work.verification.sentence(),
            "state": bookbag.WRITTEN,
        }
        with work.journal.step("bookbag"):
            bookbag.write_bookbag(prepared.bead, bag, dirs=self._dirs)
            report.state = bookbag.WRITTEN
        if work.leaf is not None:
            work.leaf.write_output({**bag, "events": work.report.diagnostics, "outcome": "completed"})

    def _write_evidence(self, work: Work, head: str) -> str:
        prepared, frozen = work.prepared, work.frozen
        repo, base = prepared.repo, prepared.base_sha
        changes = list(frozen.files_changed) if frozen else []
        present = [change.path for change in changes if change.status != "D"]
        tree = [entry.path for entry in list_tree(repo, head) if entry.type == "blob"] if changes else []
        record = {
            "repo": prepared.repo.name,
            "base_sha": base,
            "head_sha": head,
            "role": prepared.request.role,
            "domain": prepared.request.domain,
            "difficulty": prepared.request.difficulty,
            "task": prepared.request.task,
            "expected_output_format": self._brief(prepared).to_json()["expected_output_format"],
            "instructions": prepared.instructions,
            "files": [
                {
                    "path": change.path,
                    "status": change.status,
                    "additions": change.additions,
                    "deletions": change.deletions,
                    "binary": change.binary,
                }
                for change in changes
            ],
            "student": {
                "output": work.output,
                "summary": str(work.submission.get("summary") or ""),
                "messages": list(frozen.student_messages) if frozen else [],
                "agent": prepared.agent,
                "status": "completed",
            },
            "verification": {
                "status": work.verification.status,
                "command": work.verification.command,
                "exit_code": work.verification.exit_code,
                "log_file": "verification.log" if work.verification.log else None,
                "baseline": work.verification.baseline,
            },
        }
        return write_evidence(
            self._school.home,
            prepared.bead,
            record=record,
            diff=diff(repo, base, head) if head != base else b"",
            changed=present,
            neighbours=neighbours_of(present, tree),
            read=lambda path: read_file_at(repo, head, path),
            verification_log=work.verification.log.encode("utf-8", "replace"),
        )

    # -- judgment --------------------------------------------------------------------------------------------------

    def _review(self, work: Work) -> Verdicts:
        """Have it judged by the teachers, or in this process when fewer than two of them are there (R-14)."""
        prepared, journal, school = work.prepared, work.journal, self._school
        bead = prepared.bead
        expected = Expected(bead, work.report.head_sha or "", work.evidence_sha256, school.seal_keys())
        mode = prepared.request.review
        if mode == "async":
            absent = school.absent_teachers()
            if absent:
                journal.note(f"{' and '.join(absent)} not healthy: the review runs in this process")
                mode = "sync"
        verdicts: Verdicts | None = None
        if mode == "async":
            with journal.step("signal"):
                bookbag.BookbagSignal(bead, dirs=self._dirs).ready()
            with journal.step("review", mode="async"):
                verdicts = wait_for_verdicts(expected, self._dirs, school.settings)
            if verdicts.missing and not verdicts.parked and not verdicts.problems:
                journal.note(f"no verdict from {', '.join(verdicts.missing)} in time: the review runs in this process")
                mode = "sync"
        if mode == "sync":
            missing = verdicts.missing if verdicts is not None else ("cto", "coo")
            with journal.step("review_here", mode="sync", teachers=list(missing)):
                problems = school.review_here(bead, missing, self._dirs)
            bag = bookbag.read_bookbag(bead, dirs=self._dirs) or {}
            bad = check_seals(bag, expected)
            verdicts = Verdicts(bag, tuple(bad), problems, tuple(r for r in bad.values() if r), picked_up=True)
        assert verdicts is not None  # noqa: S101 - one of the two ways was taken
        work.report.review = mode
        self._take_verdicts(work, verdicts)
        bookbag.BookbagSignal(bead, dirs=self._dirs).clear()
        return verdicts

    def _take_verdicts(self, work: Work, verdicts: Verdicts) -> None:
        report, bag = work.report, verdicts.bag
        report.state = str(bag.get("state") or report.state)
        report.findings = []
        for teacher in ("cto", "coo"):
            if teacher in verdicts.missing:
                continue
            report.verdicts[teacher] = bookbag.verdict_of(bag, teacher)
            report.scores[teacher] = bag.get(f"{teacher}_score")
            report.findings += [{**finding, "teacher": teacher} for finding in bag.get(f"{teacher}_findings") or []]
            report.usage[teacher] = usage_of(self._school.teacher_usage(teacher, work.prepared.bead))
        for text in (*verdicts.problems, *(f"{t.upper()} gave up: {why}" for t, why in verdicts.parked.items())):
            work.journal.note(text)

    def _accept(self, work: Work, verdicts: Verdicts) -> None:
        """Compute R-39, write what is the principal's to write, and give an accepted bead its branch."""
        prepared, report = work.prepared, work.report
        if verdicts.missing:
            self._end(
                work, Outcome.NOT_REVIEWED, f"no verdict of {', '.join(t.upper() for t in verdicts.missing)} counts"
            )
            return
        decision = decide(verdicts.bag, work.verification.status)
        with work.journal.step("acceptance", accepted=decision.accepted, reasons=list(decision.reasons)):
            bookbag.locked_update_bookbag(
                prepared.bead, {"accepted": decision.accepted}, dirs=self._dirs, lock_timeout=30
            )
        report.accepted = decision.accepted
        if decision.accepted and report.head_sha not in {None, prepared.base_sha}:
            with work.journal.step("branch", name=prepared.branch, sha=report.head_sha):
                create_branch(prepared.repo, prepared.branch, str(report.head_sha))
            report.branch = prepared.branch
        outcome = Outcome.ACCEPTED if decision.accepted else Outcome.REJECTED
        self._end(work, outcome, "; ".join(decision.reasons) or "both judges passed it")

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, work: Work, outcome: Outcome, reason: str) -> None:
        report, bead = work.report, work.prepared.bead
        report.outcome, report.reason = outcome, reason
        human = "awaiting" if outcome is Outcome.ACCEPTED else None
        self._ledger.update_bead(bead, event="outcome", outcome=outcome, human=human, data={"reason": reason})
        scores = tuple(float(report.scores[t] or 0) for t in ("cto", "coo"))
        reviewed = outcome in {Outcome.ACCEPTED, Outcome.REJECTED}
        change = evaluate_and_update(
            self._ledger,
            f"student-{work.prepared.request.role}",
            bead,
            outcome,
            teachers=(scores[0], scores[1]) if reviewed else None,
        )
        if change is not None:
            report.score = {"old": round(change.old, 2), "new": round(change.new, 2)}

    def _close_grant(self, work: Work) -> dict[str, Any] | None:
        if not work.grant_open:
            return None
        with work.journal.step("grant_closed"):
            usage = self._school.close_grant(work.prepared.bead)
        work.grant_open = False
        work.report.usage["student"] = usage_of(usage)
        work.report.rehearsal = work.report.rehearsal or bool((usage or {}).get("rehearsal"))
        return usage

    def _dispose(self, work: Work) -> None:
        """Remove every trace; what can't be removed now stays named in the ledger for the janitor."""
        gone = True
        try:
            self._close_grant(work)
        except (GatewayError, EngineError) as error:
            work.journal.note(f"the bead's grant could not be closed: {error.message}")
            gone = False
        if work.leaf is not None and not work.leaf.dispose():
            gone = False
        kept = work.prepared.request.keep and work.leaf is not None
        work.report.cleanup = "kept" if kept else "done" if gone else "failed"
        self._archive(work)

    def _archive(self, work: Work) -> None:
        """R-9, R-13: the principal's own states, then the bookbag goes to the archive."""
        bead = work.prepared.bead
        signal = bookbag.BookbagSignal(bead, dirs=self._dirs)
        with contextlib.suppress(OSError):
            signal.clear()
        if work.report.outcome == Outcome.NOT_REVIEWED or not work.report.state:
            return  # `school review` needs the bookbag where it is; without one there is nothing to archive
        try:
            if work.report.state == bookbag.REVIEWED:
                for state in (bookbag.SCORED, bookbag.DISPOSED):
                    bookbag.locked_update_bookbag(bead, {"state": state}, dirs=self._dirs, lock_timeout=30)
                    work.report.state = state
            bookbag.archive_bookbag(bead, self._school.home.archive, dirs=self._dirs)
            bookbag.forget_lock(bead, dirs=self._dirs)
        except BookbagError as error:
            work.journal.note(f"the bookbag could not be archived: {error.message}")

    def _close(self, work: Work) -> None:
        report = work.report
        self._ledger.update_bead(
            work.prepared.bead,
            event="ended",
            status="ended",
            cleanup=report.cleanup,
            head_sha=report.head_sha,
            data={"report": json.loads(json.dumps(report.to_json(), default=str))},
        )
        work.journal.end(report.outcome, report.exit_code, report.to_json())
        work.journal.close()


def _text(error: SchoolError) -> str:
    return error.message + (f" {error.next_step}" if error.next_step else "")


def _commit_message(bead: str, task: str) -> str:
    """Return the frozen commit's subject and body; the task is the user's own text."""
    first = " ".join(task.split())[:64] or bead
    return f"{first}\n\nBead: {bead}\n"
