"""What the judges get: the evidence that the principal saw for itself, then the bookbag (R-16, DESIGN step 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.git.blobs import read_files_at
from orchestrator.git.landing import diff
from orchestrator.git.repository import list_tree
from orchestrator.leaf import verify_scope
from orchestrator.leaf.evidence import neighbours_of, write_evidence
from orchestrator.principal.work import brief_of

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.principal.work import Work


def bag_of(work: Work, head: str) -> dict[str, Any]:
    """Return the bookbag's fields: the student's words as far as they may pass, the rest as the principal knows it."""
    prepared, submission = work.prepared, work.submission
    return {
        **{name: submission[name] for name in ("ac_met", "blockers") if name in submission},
        "task": prepared.request.task,
        "student": prepared.request.role,
        "domain": prepared.request.domain,
        "difficulty": prepared.request.difficulty,
        "output": work.output,
        "summary": str(submission.get("summary") or "")[:4000],
        "repo": str(prepared.repo.root),
        "branch": "",
        "base_sha": prepared.base_sha,
        "head_sha": head,
        "files_changed": work.report.files_changed,
        "verification": work.verification.sentence(),
        "state": bookbag.WRITTEN,
    }


def write_work_evidence(home: Home, work: Work, head: str) -> str:
    """Write a bead's evidence and return its digest."""
    prepared, frozen = work.prepared, work.frozen
    repo, base = prepared.repo, prepared.base_sha
    changes = list(frozen.files_changed) if frozen else []
    present = [change.path for change in changes if change.status != "D"]
    scope = verify_scope.lines(
        verify_scope.touched(work.verification.command, [(change.path, change.status) for change in changes])
    )
    if scope:
        work.journal.note(f"the change has a say in its own check: {'; '.join(scope)}")
    tree = [entry.path for entry in list_tree(repo, head) if entry.type == "blob"] if changes else []
    record = {
        "repo": prepared.repo.name,
        "base_sha": base,
        "head_sha": head,
        "role": prepared.request.role,
        "domain": prepared.request.domain,
        "difficulty": prepared.request.difficulty,
        "task": prepared.request.task,
        "expected_output_format": brief_of(prepared).to_json()["expected_output_format"],
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
            "scope": scope,
        },
    }
    return write_evidence(
        home,
        prepared.bead,
        record=record,
        diff=diff(repo, base, head) if head != base else b"",
        changed=present,
        neighbours=neighbours_of(present, tree),
        read=lambda paths, limit: read_files_at(repo, head, paths, limit=limit),
        verification_log=work.verification.log.encode("utf-8", "replace"),
    )
