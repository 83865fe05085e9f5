"""The record's shape for the type checker; a test holds it equal to ``record.FIELDS``.

At run time a record is a plain dict with unknown fields in it (R-2), so these types describe and never restrict:
``typing.cast(Bookbag, bag)`` where checked access by name is wanted.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Verdict = Literal["", "PASS", "FAIL"]
Severity = Literal["CRITICAL", "HIGH", "MEDIUM", "LOW"]
State = Literal["WRITTEN", "CTO_REVIEWED", "COO_REVIEWED", "REVIEWED", "SCORED", "DISPOSED"]
Teacher = Literal["cto", "coo"]


class Finding(TypedDict):
    """One thing a teacher found (R-10)."""

    section: str
    issue_class: str
    severity: Severity
    citation: str
    description: str
    suggestion: str


class Seal(TypedDict):
    """A teacher's signature under its review; see ``seal.py``."""

    v: int
    key_id: str
    mac: str
    evidence_sha256: str
    output_sha256: str
    mode: Literal["async", "sync"]
    model: str


class Attempt(TypedDict):
    """A review that could not be made (R-37)."""

    at: str
    reason: str


class Bookbag(TypedDict, total=False):
    """The known fields (R-2)."""

    schema_version: int
    bead: str
    task: str | None
    student: str
    domain: str
    difficulty: str
    repo: str
    branch: str
    base_sha: str
    head_sha: str
    state: State
    output: str
    summary: str
    ac_met: list[str]
    blockers: list[str]
    files_changed: list[str]
    verification: str | dict[str, Any]
    lens: str | list[str]
    findings: list[Finding]
    accepted: bool
    timestamp: str

    cto_verdict: Verdict
    cto_score: float | None
    cto_confidence: float | None
    cto_findings: list[Finding]
    cto_lens: str | list[str]
    cto_ac_met: list[str]
    cto_summary: str
    cto_reviewed_at: str
    cto_seal: Seal | None
    cto_attempts: list[Attempt]

    coo_verdict: Verdict
    coo_score: float | None
    coo_confidence: float | None
    coo_findings: list[Finding]
    coo_lens: str | list[str]
    coo_ac_met: list[str]
    coo_summary: str
    coo_reviewed_at: str
    coo_seal: Seal | None
    coo_attempts: list[Attempt]
