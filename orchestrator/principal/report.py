"""The report of one bead: what ``--json`` prints and the ledger keeps. docs/spawn.schema.json describes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.sandbox.outcome import CLEANUP_FAILED, Outcome


def _nobody() -> dict[str, Any]:
    return {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost_usd": None}


@dataclass(slots=True)
class Report:
    """Everything that a program or a person wants to know of a bead."""

    bead: str
    outcome: str = ""
    reason: str = ""
    state: str = ""
    accepted: bool = False
    verdicts: dict[str, str] = field(default_factory=lambda: {"cto": "", "coo": ""})
    scores: dict[str, float | None] = field(default_factory=lambda: {"cto": None, "coo": None})
    findings: list[dict[str, Any]] = field(default_factory=list)
    task: str = ""
    role: str = ""
    agent: str = ""
    model: str = ""
    rehearsal: bool = False
    review: str = ""
    repo: str = ""
    branch: str | None = None
    base_sha: str = ""
    head_sha: str | None = None
    files_changed: list[str] = field(default_factory=list)
    diffstat: dict[str, int] = field(default_factory=lambda: {"files": 0, "additions": 0, "deletions": 0})
    output: str = ""
    verification: dict[str, Any] = field(
        default_factory=lambda: {
            "status": "not_configured",
            "command": None,
            "exit_code": None,
            "log": "",
            "baseline": None,
        }
    )
    usage: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"student": _nobody(), "cto": _nobody(), "coo": _nobody()}
    )
    score: dict[str, float] | None = None
    cleanup: str = "pending"
    timings: dict[str, float] = field(default_factory=dict)
    diagnostics: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the object."""
        return asdict(self)

    @property
    def exit_code(self) -> int:
        """The exit code of ``school spawn``: 8 only when the work was accepted and the cleanup failed."""
        outcome = Outcome(self.outcome)
        if outcome is Outcome.ACCEPTED and self.cleanup == "failed":
            return CLEANUP_FAILED
        return outcome.exit_code


def usage_of(meter: dict[str, Any] | None) -> dict[str, Any]:
    """Return the four figures of a gate's meter; an unknown cost stays null."""
    if not meter:
        return _nobody()
    return {name: meter.get(name, default) for name, default in _nobody().items()}
