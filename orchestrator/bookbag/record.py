"""The record in a bookbag: its fields, their defaults and who may fill them (R-2, R-5, R-10).

A record is a plain ``dict``: unknown fields must survive every read-modify-write (R-2), which no closed type can
promise. The known fields are described once, in ``FIELDS``; ``shapes.py`` gives the same to the type checker.
Light on purpose: a leaf's entry point imports this file.
"""

from __future__ import annotations

import time

from orchestrator.bookbag.bead import check_bead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCHEMA_VERSION = 1

TEACHERS = ("cto", "coo")

NOT_REVIEWED = ""
PASS = "PASS"  # noqa: S105 - a verdict, not a password
FAIL = "FAIL"
VERDICTS = (NOT_REVIEWED, PASS, FAIL)
"""R-5."""

SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
FINDING_FIELDS = ("section", "issue_class", "severity", "citation", "description", "suggestion")
"""R-10."""

WRITTEN = "WRITTEN"
CTO_REVIEWED = "CTO_REVIEWED"
COO_REVIEWED = "COO_REVIEWED"
REVIEWED = "REVIEWED"
SCORED = "SCORED"
DISPOSED = "DISPOSED"
STATES = (WRITTEN, CTO_REVIEWED, COO_REVIEWED, REVIEWED, SCORED, DISPOSED)
"""R-11."""


class Field:
    """One known field.

    Attributes:
        kind: A name from ``validate.KINDS``.
        default: The value in a new record; a list is copied.
        owner: Who fills it: ``student``, ``principal``, ``cto`` or ``coo``.
    """

    __slots__ = ("default", "kind", "owner")

    def __init__(self, kind: str, default: Any, owner: str) -> None:
        self.kind = kind
        self.default = default
        self.owner = owner


_COMMON = {
    "schema_version": Field("version", SCHEMA_VERSION, "principal"),
    "bead": Field("bead", "", "principal"),
    "task": Field("text or null", None, "principal"),
    "student": Field("text", "", "principal"),
    "domain": Field("text", "", "principal"),
    "difficulty": Field("text", "", "principal"),
    "repo": Field("text", "", "principal"),
    "branch": Field("text", "", "principal"),
    "base_sha": Field("sha", "", "principal"),
    "head_sha": Field("sha", "", "principal"),
    "state": Field("state", WRITTEN, "principal"),
    "output": Field("text", "", "student"),
    "summary": Field("text", "", "student"),
    "ac_met": Field("texts", [], "student"),
    "blockers": Field("texts", [], "student"),
    "files_changed": Field("texts", [], "principal"),
    "verification": Field("text or object", "", "principal"),
    "lens": Field("text or texts", "", "principal"),
    "findings": Field("findings", [], "principal"),
    "accepted": Field("flag", False, "principal"),
    "timestamp": Field("time", "", "principal"),
}

_REVIEW: dict[str, tuple[str, Any]] = {
    "verdict": ("verdict", NOT_REVIEWED),
    "score": ("score", None),
    "confidence": ("confidence", None),
    "findings": ("findings", []),
    "lens": ("text or texts", ""),
    "ac_met": ("texts", []),
    "summary": ("text", ""),
    "reviewed_at": ("time or empty", ""),
    "seal": ("object or null", None),
    "attempts": ("objects", []),
}
REVIEW_FIELDS = tuple(_REVIEW)
"""What each teacher fills, without its prefix (``cto_verdict``, ``coo_score``, ...)."""

FIELDS = _COMMON | {
    f"{teacher}_{name}": Field(kind, default, teacher)
    for teacher in TEACHERS
    for name, (kind, default) in _REVIEW.items()
}
"""Every known field in the order of a new record."""


def now() -> str:
    """Return the current time as ISO-8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def new_bookbag(bead: str, fields: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
    """Return a complete record: every known field at its default, then ``fields``, then ``more``.

    Raises:
        InvalidBeadError: ``bead`` is outside the grammar (R-6).
    """
    bag = {
        name: list(field.default) if isinstance(field.default, list) else field.default
        for name, field in FIELDS.items()
    }
    bag |= {**(fields or {}), **more}
    bag["bead"] = check_bead(bead)
    bag["timestamp"] = bag["timestamp"] or now()
    return bag


def verdict_of(bag: Mapping[str, Any], teacher: str) -> str:
    """Return a teacher's verdict; "" when there is none yet (R-5)."""
    return bag.get(f"{teacher}_verdict") or NOT_REVIEWED
