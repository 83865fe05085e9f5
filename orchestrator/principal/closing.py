"""The end of a bead: its outcome, its score, the removal of every trace, and the last word in ledger and log."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.errors import EngineError, GatewayError, GitError, LedgerError
from orchestrator.faults import fault_point
from orchestrator.principal import removal
from orchestrator.principal.budgets import notes_of
from orchestrator.principal.efc import record as record_feedback
from orchestrator.principal.report import usage_of
from orchestrator.principal.scoring import REHEARSED, evaluate_and_update
from orchestrator.principal.work import Stage, Work, prepared_to_json
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from orchestrator.principal.cancel import Cancellation
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.school import School


class Closing:
    """Ends beads of one home; the caller holds their leases."""

    def __init__(self, school: School, ledger: Ledger, cancellation: Cancellation) -> None:
        self._school = school
        self._ledger = ledger
        self._cancellation = cancellation

    def end(self, work: Work, outcome: Outcome, reason: str) -> None:
        """Decide the outcome, once; from here on nothing is cancelled any more."""
        self._cancellation.shield()
        report = work.report
        if report.outcome:
            return
        report.outcome, report.reason = outcome, reason
        human = "awaiting" if outcome is Outcome.ACCEPTED else None
        self._ledger.update_bead(
            report.bead,
            event="outcome",
            outcome=outcome,
            human=human,
            head_sha=report.head_sha,
            data={"reason": reason, "progress": work.to_json()},
        )
        fault_point("outcome")
        self.score(work)

    def score(self, work: Work) -> None:
        """R-41; a bead is scored once, however often this is called."""
        report = work.report
        outcome = Outcome(report.outcome)
        scores = tuple(float(report.scores[t] or 0) for t in ("cto", "coo"))
        reviewed = outcome in {Outcome.ACCEPTED, Outcome.REJECTED}
        request = work.prepared.request
        # what a script answered says nothing of a profile: it is kept apart and routes nobody
        profile = f"{REHEARSED}{request.profile_name}" if report.rehearsal else request.profile_name
        change = evaluate_and_update(
            self._ledger,
            profile,
            report.bead,
            outcome,
            teachers=(scores[0], scores[1]) if reviewed else None,
        )
        if change is not None:
            report.score = {"old": round(change.old, 2), "new": round(change.new, 2)}
        record_feedback(
            self._ledger,
            report.bead,
            profile=profile,
            domain=request.domain,
            difficulty=request.difficulty,
            outcome=outcome,
            findings=report.findings,
            check=str(report.verification.get("status")),
            paths=report.files_changed,
            fixes=(request.context.get("fix") or {}).get("of"),
        )
        fault_point("scored")

    def close_grant(self, work: Work) -> dict[str, Any] | None:
        """Revoke the bead's key and socket, once; return what it used.

        Raises:
            GatewayError: one of them could not be revoked.
        """
        if not work.grant_open:
            return None
        with work.journal.step("grant_closed", removal=True):
            usage = self._school.close_grant(work.prepared.bead)
        work.grant_open = False
        work.report.usage["student"] = usage_of(usage)
        for text in notes_of(usage):
            work.journal.note(text)
        work.report.rehearsal = work.report.rehearsal or bool((usage or {}).get("rehearsal"))
        return usage

    def dispose(self, work: Work) -> None:
        """Remove every trace; what can't be removed now stays named in the ledger for the janitor."""
        report, home, bead = work.report, self._school.home, work.report.bead
        kept = work.prepared.request.keep and work.stage >= Stage.BOOTED
        if kept:
            work.journal.note(f"kept for debugging: {home.leaves / bead} (school gc --kept removes it)")
            reasons = []
        else:
            with work.journal.step("dispose", removal=True, name=work.prepared.leaf_name):
                reasons = self._remove(work)
        try:
            self.close_grant(work)
        except (GatewayError, EngineError) as error:
            reasons.append(f"its grant could not be closed: {error.message}")
        later = report.outcome == Outcome.NOT_REVIEWED
        reasons += removal.archive_papers(home, bead, reviewed_later=later)
        if report.state == bookbag.REVIEWED and not reasons:
            report.state = bookbag.DISPOSED
        for reason in reasons:
            work.journal.note(reason)
        report.cleanup = "kept" if kept else "failed" if reasons else "done"

    def _remove(self, work: Work) -> list[str]:
        """Containers first; then the student's work is kept, unless it is; then its tree goes."""
        home, bead = self._school.home, work.report.bead
        reasons = removal.remove_containers(self._school.engine, home, bead)
        if reasons:
            return reasons  # a tree that a container may still write is neither read nor removed
        row = {"bead": bead, "created": work.created, "data": prepared_to_json(work.prepared)}
        if Stage.BOOTED <= work.stage < Stage.FROZEN:
            try:
                work.report.head_sha = removal.salvage(home, row) or work.report.head_sha
            except GitError as error:
                return [f"its work could not be kept, so its tree stays in {home.leaves / bead}: {error.message}"]
            with contextlib.suppress(LedgerError):
                self._ledger.update_bead(bead, event="kept", head_sha=work.report.head_sha)
        return removal.remove_folders(home, row)

    def close(self, work: Work) -> None:
        """Write the end into the ledger and the log.

        Raises:
            LedgerError: the ledger can't be written; the janitor does it later.
        """
        report = work.report
        self._ledger.update_bead(
            report.bead,
            event="ended",
            status="ended",
            outcome=report.outcome,
            cleanup=report.cleanup,
            head_sha=report.head_sha,
            data={"report": report.to_json()},
        )
        fault_point("ended")
        if not work.reported:
            work.journal.end(report.outcome, report.exit_code, report.to_json())
        work.journal.close()
