"""What is said of budgets: a warning at four fifths, which one was spent, and by how much (R-56)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.errors import BlockedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.gateway.gate_client import GateClient
    from orchestrator.settings import Settings

_WORDS = {"calls": "calls", "tokens": "tokens", "cost_usd": "cost"}


def check_day(gate: GateClient, settings: Settings) -> list[str]:
    """Tell the gate the limits of the day; return a warning when one is nearly spent.

    Raises:
        BlockedError: one is spent: no bead can be begun today.
        GatewayUnavailableError: the gate does not answer.
    """
    day = gate.limit_day(
        {"calls": settings.day_max_calls, "tokens": settings.day_max_tokens, "cost_usd": settings.day_max_cost}
    )
    near: Mapping[str, float] = day.get("near") or {}
    spent = [name for name, part in near.items() if part >= 1]
    if spent:
        what = " and ".join(_WORDS[name] for name in spent)
        raise BlockedError(
            f"The school's budget of {what} for {day['date']} (UTC) is spent.",
            next_step="It begins anew at midnight (UTC); raise it with SCHOOL_DAY_MAX_CALLS, _TOKENS or _COST.",
        )
    return [f"{part:.0%} of the school's budget of {_WORDS[name]} for today are used" for name, part in near.items()]


def notes_of(usage: Mapping[str, Any] | None) -> list[str]:
    """Return what a bead's meter has to say of its own budget."""
    if not usage:
        return []
    notes = [
        f"{part:.0%} of the budget of {_WORDS[name]} were used" for name, part in (usage.get("near") or {}).items()
    ]
    over = usage.get("overrun") or {}
    return [*notes, *(f"the budget of {_WORDS[name]} was overrun by {amount:g}" for name, amount in over.items())]
