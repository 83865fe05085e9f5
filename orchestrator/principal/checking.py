"""The repository's own check on the frozen commit, compared with the same check on base_sha (DESIGN, step 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.leaf.verify import FAILED, Verification, Verifier
from orchestrator.principal import removal
from orchestrator.principal.work import plan_of

if TYPE_CHECKING:
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.school import School
    from orchestrator.principal.work import Work


def verify(work: Work, school: School, ledger: Ledger) -> None:
    """Run the check in a clean container, when one is configured; never raises for what the repository does."""
    prepared, head = work.prepared, work.report.head_sha
    if not prepared.verify or head is None:
        work.journal.note("verification is not configured (--verify, or [verify] in .school.toml)")
        return
    if work.resumed:  # a verification that was cut off is begun anew
        removal.remove_containers(school.engine, school.home, prepared.bead)
        removal.remove_verification(school.home, prepared.bead)
    verifier = Verifier(
        home=school.home,
        engine=school.engine,
        repo=prepared.repo,
        student=plan_of(prepared, school),
        command=prepared.verify,
        timeout=school.settings.verify_timeout,
        journal=work.journal.scoped("verify"),
        starting=school.starting,
    )
    with work.journal.step("verify", command=prepared.verify, sha=head):
        result = verifier.run(head, label="v")
    if result.status == FAILED and head != prepared.base_sha:
        result = _with_baseline(work, ledger, verifier, result)
    work.verification = result
    work.report.verification = result.to_json()


def _with_baseline(work: Work, ledger: Ledger, verifier: Verifier, result: Verification) -> Verification:
    """Say whether the check failed before the student came."""
    base = work.prepared.base_sha
    key = verifier.baseline_key(base)
    known = ledger.baseline(key)
    if known is None:
        with work.journal.step("baseline", sha=base):
            before = verifier.run(base, label="b")
        ledger.keep_baseline(key, before.status, before.exit_code)
        known = (before.status, before.exit_code)
    return Verification(result.status, result.command, result.exit_code, result.log, known[0], result.reason)
