"""The brief as an agent reads it, and the two texts that every agent says to the model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.agents.places import Places

MAX_INSTRUCTIONS = 48_000  # characters of the repository's AGENTS.md that are shown


class BriefError(ValueError):
    """The brief can't be used. The message says what is wrong with it."""


@dataclass(frozen=True)
class Brief:
    """One task (R-24)."""

    bead: str
    role: str
    task: str
    model: str
    domain: str = ""
    difficulty: str = ""
    guardrails: list[str] = field(default_factory=list)
    expected_output_format: str = ""
    verification: str = ""
    completion_signal: str = ""
    command: str = ""
    wall_s: float = 1800.0
    turns: int = 60
    soul: str = ""
    instructions: str = ""


def read_brief(places: Places) -> Brief:
    """Read brief, persona and instructions from the inbox.

    Raises:
        BriefError: The file is missing, is not JSON, or lacks a task, role or bead.
    """
    try:
        raw = json.loads(Path(places.brief).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BriefError(f"the brief can't be read: {error}") from error
    if not isinstance(raw, dict):
        raise BriefError("the brief is not a JSON object")
    missing = [name for name in ("bead", "role", "task") if not isinstance(raw.get(name), str) or not raw[name]]
    if missing:
        raise BriefError(f"the brief lacks {', '.join(missing)}")
    limits: dict[str, Any] = raw.get("limits") or {}
    optional = ("domain", "difficulty", "expected_output_format", "verification", "completion_signal", "command")
    return Brief(
        bead=raw["bead"],
        role=raw["role"],
        task=raw["task"],
        model=str(raw.get("model") or "rehearsal"),
        guardrails=[str(rule) for rule in raw.get("guardrails") or []],
        wall_s=float(limits.get("wall_s") or 1800),
        turns=int(limits.get("turns") or 60),
        soul=_read_optional(places.soul),
        instructions=_read_optional(places.instructions)[:MAX_INSTRUCTIONS],
        **{name: str(raw.get(name) or "") for name in optional},
    )


def header(brief: Brief) -> str:
    """The two lines that every prompt of a student begins with; logs and rehearsal match on them."""
    return f"School-Role: {brief.role}\nSchool-Bead: {brief.bead}"


def task_message(brief: Brief) -> str:
    """The task with what surrounds it, for the user's message."""
    parts = [brief.task.strip()]
    if brief.guardrails:
        parts.append("Rules for this task:\n" + "\n".join(f"- {rule}" for rule in brief.guardrails))
    if brief.expected_output_format:
        parts.append(f"Expected output: {brief.expected_output_format}")
    if brief.verification:
        parts.append(f"Your change will be checked with: {brief.verification}")
    if brief.completion_signal:
        parts.append(f"You are done when: {brief.completion_signal}")
    return "\n\n".join(parts)


def situation(places: Places) -> str:
    """What is true of every leaf, so that the model does not have to find out by failing."""
    return (
        f"You work alone in a sandbox. The repository is at {places.workspace}; change files there and nowhere else. "
        "There is no network. Git works (status, diff, log, commit); you need not commit: your changes are taken as "
        "they are when you finish. Nobody can answer questions: decide, and say what you decided in your final message."
    )


def instructions_block(brief: Brief) -> str:
    """The repository's own instructions, or nothing."""
    if not brief.instructions.strip():
        return ""
    return "The repository's instructions for agents (AGENTS.md):\n\n" + brief.instructions.strip()


def _read_optional(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
