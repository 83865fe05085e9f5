"""The brief: the task contract that a student gets (R-24)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

ROLES = ("coder", "executor", "searcher", "reviewer", "browser")
TEXT_ROLES = frozenset({"searcher", "reviewer", "browser"})
"""Roles whose product may be text alone; the others must change the tree."""

GUARDRAILS = (
    "Work in /workspace only; nothing outside it is kept.",
    "There is no network but the model.",
    "Files under .hermes/briefs, .hermes/outputs and .hermes/results are not part of the result.",
    "What you say of your own tests is not evidence: the repository's own check is run again on your result.",
)

FORMATS = {
    "coder": "A change of the files in /workspace that does the task, then a short summary: what was changed, and why.",
    "executor": "The effects of the commands in /workspace, then what was run and what it printed, in short.",
    "searcher": "An answer with the places (path and line) that prove it.",
    "reviewer": "Findings with severity, place and suggestion.",
    "browser": "What was found, with its place in the repository; there is no network to browse.",
}

COMPLETION_SIGNAL = "End your turn with the summary; the sandbox hands it in."


@dataclass(frozen=True, slots=True)
class Brief:
    """One student's task. Written to the inbox, and to ``.hermes/briefs/<bead>.json`` in the worktree."""

    bead: str
    role: str
    domain: str
    task: str
    difficulty: str
    agent: str
    model: str
    command: str = ""
    verification: str = ""
    guardrails: tuple[str, ...] = GUARDRAILS
    expected_output_format: str = ""
    completion_signal: str = COMPLETION_SIGNAL
    limits: dict[str, int] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    v: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the brief as the JSON object that ``agents/`` reads."""
        data = asdict(self)
        data["guardrails"] = list(self.guardrails)
        data["expected_output_format"] = self.expected_output_format or FORMATS.get(self.role, FORMATS["coder"])
        return data
