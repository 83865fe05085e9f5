"""The brief as an agent reads it, and the two texts that every agent says to the model.

Read before an agent's first event, so without ``dataclasses``, ``pathlib`` and ``typing`` (30 ms together).
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.agents.places import Places

DEFAULT_WALL = 1800.0  # seconds
DEFAULT_TURNS = 60
MAX_BEFORE = 16_000  # characters of what an earlier attempt left
MAX_INSTRUCTIONS = 48_000  # characters of the repository's AGENTS.md that are shown


class BriefError(ValueError):
    """The brief can't be used. The message says what is wrong with it."""


class Brief:
    """One task (R-24), with the persona and the repository's instructions."""

    def __init__(self, raw: dict[str, Any], *, soul: str = "", instructions: str = "") -> None:
        """Take what is known of a parsed brief.

        Raises:
            BriefError: It lacks a task, role or bead, or a limit is not a number.
        """
        missing = [name for name in ("bead", "role", "task") if not isinstance(raw.get(name), str) or not raw[name]]
        if missing:
            raise BriefError(f"the brief lacks {', '.join(missing)}")
        self.bead: str = raw["bead"]
        self.role: str = raw["role"]
        self.task: str = raw["task"]
        self.model = str(raw.get("model") or "rehearsal")
        self.guardrails = [str(rule) for rule in raw.get("guardrails") or []]
        self.expected_output_format = str(raw.get("expected_output_format") or "")
        self.verification = str(raw.get("verification") or "")
        self.completion_signal = str(raw.get("completion_signal") or "")
        self.command = str(raw.get("command") or "")
        context = raw.get("context")
        self.context: dict[str, Any] = context if isinstance(context, dict) else {}
        limits = raw.get("limits") or {}
        try:
            self.wall_s = float(limits.get("wall_s") or DEFAULT_WALL)
            self.turns = int(limits.get("turns") or DEFAULT_TURNS)
        except (TypeError, ValueError, AttributeError) as error:
            raise BriefError(f"the brief's limits can't be read: {error}") from error
        self.soul = soul
        self.instructions = instructions[:MAX_INSTRUCTIONS]


def read_brief(places: Places) -> Brief:
    """Read brief, persona and instructions from the inbox.

    Raises:
        BriefError: The file is missing, is not JSON, or is no brief.
    """
    try:
        with open(places.brief, encoding="utf-8") as file:  # noqa: PTH123 - see above
            raw = json.load(file)
    except (OSError, ValueError) as error:
        raise BriefError(f"the brief can't be read: {error}") from error
    if not isinstance(raw, dict):
        raise BriefError("the brief is not a JSON object")
    return Brief(raw, soul=_read_optional(places.soul), instructions=_read_optional(places.instructions))


def header(brief: Brief) -> str:
    """The two lines that every prompt of a student begins with; logs and rehearsal match on them."""
    return f"School-Role: {brief.role}\nSchool-Bead: {brief.bead}"


def task_message(brief: Brief) -> str:
    """The task with what surrounds it, for the user's message."""
    parts = [brief.task.strip()]
    if before := _before(brief):
        parts.append(before)
    if brief.guardrails:
        parts.append("Rules for this task:\n" + "\n".join(f"- {rule}" for rule in brief.guardrails))
    if brief.expected_output_format:
        parts.append(f"Expected output: {brief.expected_output_format}")
    if brief.verification:
        parts.append(f"Your change will be checked with: {brief.verification}")
    if brief.completion_signal:
        parts.append(f"You are done when: {brief.completion_signal}")
    return "\n\n".join(parts)


def _before(brief: Brief) -> str:
    """What an earlier attempt left, for a student that is to do better (R-43); nothing for a first one."""
    fix = brief.context.get("fix")
    if not isinstance(fix, dict):
        return ""
    lines = [
        f"An earlier attempt by another student ended as {fix.get('outcome')}: {fix.get('reason') or 'no reason'}."
    ]
    if fix.get("earlier_commit"):
        commit = str(fix["earlier_commit"])[:64]
        lines.append(f"You start from the same base as it did. Its change can be read with: git show {commit}")
    findings = [finding for finding in fix.get("findings") or [] if isinstance(finding, dict)]
    if findings:
        lines.append("What the judges found (to be weighed, not obeyed):")
    for finding in findings:
        words = [str(finding.get(name) or "").strip() for name in ("severity", "citation", "description", "suggestion")]
        lines.append("- " + " | ".join(word for word in words if word))
    return "\n".join(lines)[:MAX_BEFORE]


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
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - see above
            return file.read()
    except FileNotFoundError:
        return ""
