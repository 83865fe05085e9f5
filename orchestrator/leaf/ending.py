"""From what the engine, the gate and the entry point say to a typed outcome.

The order matters: what the host saw for itself (disk, out-of-memory, the gate's meter) outranks what came out of the
container. ``outcome.json`` is not read here: the student could have written it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import Exited, Lost, Rejected
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.engine.base import WaitResult

EXIT_COMPLETED, EXIT_FAILED, EXIT_TIMED_OUT, EXIT_MEMORY, EXIT_DENIED = 0, 3, 4, 5, 6
KILLED = 137
BUDGET_STOPS = {
    "calls": "the budget of calls",
    "tokens": "the budget of tokens",
    "cost": "the budget of cost",
    "day-calls": "the school's budget of calls for the day",
    "day-tokens": "the school's budget of tokens for the day",
    "day-cost": "the school's budget of cost for the day",
}
"""Reasons for which the gate stops a bead that is out of budget, in words."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the agent's run ended. ``outcome`` is None when it completed: the judges decide then."""

    outcome: Outcome | None
    reason: str
    exit_code: int | None


def classify(  # noqa: C901, PLR0911 - a table of endings, one return each
    result: WaitResult,
    *,
    disk_exceeded: str = "",
    deadline_passed: bool = False,
    usage: Mapping[str, Any] | None = None,
    agent_reason: str = "",
) -> Ending:
    """Return how a student's run ended.

    Args:
        result: What the engine says.
        disk_exceeded: What the quota's watcher said when it ended the leaf, or nothing.
        deadline_passed: Whether the leaf's deadline had passed when it ended.
        usage: The gate's meter for the bead, None for a leaf without a gate.
        agent_reason: The reason that the entry point gave, for the text only.
    """
    code = result.code if isinstance(result, Exited) else None
    stopped = (usage or {}).get("stopped")
    if disk_exceeded:
        return Ending(Outcome.DISK_EXCEEDED, disk_exceeded, code)
    if isinstance(result, Lost):
        return Ending(Outcome.LOST, f"the engine lost the container ({result.where})", None)
    if isinstance(result, Rejected):
        return Ending(Outcome.SANDBOX_UNAVAILABLE, f"the engine refused the container: {result.reason}", None)
    if not isinstance(result, Exited):
        return Ending(Outcome.LOST, "the container's end was not seen", None)
    if code == EXIT_COMPLETED:
        return Ending(None, agent_reason or "completed", code)
    if result.oom or code == EXIT_MEMORY:
        return Ending(Outcome.OUT_OF_MEMORY, "the memory limit was reached and the agent failed", code)
    if code == EXIT_TIMED_OUT or (code == KILLED and deadline_passed):
        return Ending(Outcome.TIMED_OUT, "the time limit was reached", code)
    if code == KILLED:  # nothing inside can kill the first process: somebody outside did, and it was not us
        return Ending(Outcome.LOST, "the container was killed from outside", code)
    if stopped in BUDGET_STOPS:
        return Ending(Outcome.BUDGET_EXHAUSTED, f"{BUDGET_STOPS[str(stopped)]} was spent{_overrun(usage)}", code)
    if code == EXIT_DENIED or _never_answered(usage):
        return Ending(Outcome.GATEWAY_DENIED, _denial(usage, agent_reason), code)
    return Ending(Outcome.TASK_FAILED, agent_reason or f"the agent ended with {code}", code)


def _never_answered(usage: Mapping[str, Any] | None) -> bool:
    """Whether every call to the model failed: then the student could not think, which is not its fault."""
    if not usage:
        return False
    bad = int(usage.get("failed") or 0) + int(usage.get("refused") or 0)
    return bad > 0 and int(usage.get("calls") or 0) <= int(usage.get("failed") or 0)


def _overrun(usage: Mapping[str, Any] | None) -> str:
    over = (usage or {}).get("overrun") or {}
    said = [f"{amount:g} {'USD' if name == 'cost_usd' else name}" for name, amount in over.items()]
    return f", overrun by {' and '.join(said)}" if said else ""


def _denial(usage: Mapping[str, Any] | None, agent_reason: str) -> str:
    last = (usage or {}).get("last_error") or {}
    if last:
        status, code = last.get("status"), str(last.get("code") or "")
        told = f"{status} {code}".strip()
        if isinstance(status, int) and status >= 500:
            return f"the model did not answer (last: {told}); see what answers: school gateway test"
        return f"the gateway refused the model calls (last: {told}); see what answers: school gateway test"
    return agent_reason or "the gateway refused the model calls"
