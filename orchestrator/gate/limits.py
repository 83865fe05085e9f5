"""Decides whether one more call may start, so that a budget holds under parallel calls too.

Calls are counted when they start, so that limit is exact. Tokens and cost are known only when a call has ended:
each call in flight holds a reservation meanwhile, and a call that might pass the limit together with the others
waits (429) until it is alone. So a budget is overrun by at most one call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.gate.meters import Call
from orchestrator.gate.routes import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator.gate.day import Day
    from orchestrator.gate.grants import Counters, Grant, Limits

BYTES_PER_TOKEN = 3  # text is nearer to 4: a reservation must not be too small
DEFAULT_COMPLETION = 8192  # reserved when the body sets no limit of its own


def standing(grant: Grant) -> Refusal | None:
    """Return why no call at all may pass any more, or None."""
    if grant.revoked:
        return Refusal(403, "revoked", "This grant was revoked.", stopped="revoked")
    if grant.expired():
        return Refusal(403, "deadline", "The deadline of this grant has passed.", stopped="deadline")
    return None


def admit(
    grant: Grant,
    *,
    bead: str | None,
    route: str,
    body: Mapping[str, Any],
    size: int,
) -> Call | Refusal:
    """Start a call, or say why not. ``size`` is the body's length in bytes."""
    refusal = standing(grant)
    if refusal is not None:
        return refusal
    model = body.get("model")
    if not isinstance(model, str) or model not in grant.terms.models:
        allowed = ", ".join(grant.terms.models) or "none"
        asked = str(model)[:100]
        message = f"Model {asked!r} is not allowed here; allowed: {allowed}."
        return Refusal(403, "model_not_allowed", message, model=asked)
    call = Call(grant, bead, route, model, stream=body.get("stream") is True)
    call.reserved_tokens = size // BYTES_PER_TOKEN + _completion_bound(body)
    price = grant.terms.prices.get(model)
    if price is not None:
        call.reserved_cost = price.cost(size // BYTES_PER_TOKEN, _completion_bound(body))
    terms = grant.terms.limits
    refusal = _spent(terms, grant.total) or _crowded(terms, grant.total, grant.in_flight, call)
    if refusal is None and grant.day is not None:
        refusal = _of_the_day(grant.day, call)
    if refusal is not None:
        return replace(refusal, model=model)
    call.begin()
    return call


def _completion_bound(body: Mapping[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return DEFAULT_COMPLETION


def _of_the_day(day: Day, call: Call) -> Refusal | None:
    """Apply the same rules to all grants together."""
    total = day.today()
    spent = _spent(day.limits, total)
    if spent is not None:
        message = f"The school's budget of the day (UTC) is spent. {spent.message}"
        return replace(spent, message=message, stopped=f"day-{spent.stopped}")
    return _crowded(day.limits, total, day.in_flight, call)


def _spent(limits: Limits, total: Counters) -> Refusal | None:
    if limits.calls is not None and total.calls >= limits.calls:
        return _exhausted("calls", f"all {limits.calls} calls are used")
    if limits.tokens is not None and total.tokens >= limits.tokens:
        return _exhausted("tokens", f"{total.tokens} of {limits.tokens} tokens are used")
    if limits.cost_usd is not None and total.cost_known_usd >= limits.cost_usd and limits.cost_usd > 0:
        return _exhausted("cost", f"{total.cost_known_usd:.4f} of {limits.cost_usd:.4f} USD are used")
    if limits.cost_usd == 0 and total.cost_known_usd > 0:
        return _exhausted("cost", "this grant is for models that cost nothing")
    return None


def _exhausted(what: str, detail: str) -> Refusal:
    return Refusal(403, "budget_exhausted", f"The budget of this grant is spent: {detail}.", stopped=what)


def _crowded(limits: Limits, total: Counters, others: Collection[Call], call: Call) -> Refusal | None:
    if not others:
        return None
    if limits.parallel is not None and len(others) >= limits.parallel:
        return Refusal(429, "parallel_limit", f"{limits.parallel} calls are in flight already.", retry_after=1)
    tokens = total.tokens + call.reserved_tokens + sum(other.reserved_tokens for other in others)
    cost = total.cost_known_usd + call.reserved_cost + sum(other.reserved_cost for other in others)
    near_tokens = limits.tokens is not None and tokens > limits.tokens
    near_cost = limits.cost_usd is not None and call.reserved_cost > 0 and cost > limits.cost_usd
    if near_tokens or near_cost:
        return Refusal(429, "budget_nearly_spent", "Near its budget a grant has one call at a time.", retry_after=1)
    return None
