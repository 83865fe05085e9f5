"""What a grant allows and what it has used. Plain values: nothing here talks to a socket or a disk."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.gate.place import valid_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.gate.day import Day
    from orchestrator.gate.meters import Call

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""A grant's name and a bead's id: also a folder's name, so no slash and no empty or dotted part."""
NAME_LIMIT = 128
BEADS_KEPT = 500
"""Beads a teacher's grant keeps counters for; the least recently used one is forgotten first."""
WARN_AT = 0.8
"""The part of a budget from which on it is said to be nearly spent."""
KINDS = ("student", "teacher", "principal")


def valid_name(text: str) -> bool:
    """Return whether ``text`` can name a grant or a bead."""
    return len(text) <= NAME_LIMIT and NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one grant; None is unbounded. ``tokens`` is prompt and completion together."""

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    parallel: int | None = None

    @classmethod
    def parse(cls, data: Any) -> Limits:
        """Read limits as the control channel and the state file have them.

        Raises:
            ValueError: one is malformed; the text names it.
        """
        limits = data or {}
        if not isinstance(limits, dict):
            raise ValueError("limits must be an object")  # noqa: TRY004 - one error for every malformed body
        return cls(
            calls=_whole(limits, "calls"),
            tokens=_whole(limits, "tokens"),
            cost_usd=_number(limits, "cost_usd"),
            parallel=_whole(limits, "parallel"),
        )


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float

    def cost(self, prompt: int, completion: int) -> float:
        """Return the cost of a call in USD."""
        return (prompt * self.input + completion * self.output) / 1_000_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What the principal grants. ``deadline`` is epoch seconds; a price of None is unknown, never free."""

    kind: str
    key: str = field(repr=False)
    bead: str | None = None
    models: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    prices: Mapping[str, Price | None] = field(default_factory=dict)
    deadline: float | None = None
    rehearsal_models: frozenset[str] = frozenset()
    egress: tuple[str, ...] = ()  # name:port, each exactly; empty: there is no proxy
    egress_bytes: int | None = None  # both ways together

    @classmethod
    def parse(cls, data: Any) -> Terms:
        """Read the body of a PUT.

        Raises:
            ValueError: a field is missing or malformed; the text names it and never holds the key.
        """
        if not isinstance(data, dict):
            raise ValueError("the body must be a JSON object")  # noqa: TRY004 - one error for every malformed body
        kind, key, bead = data.get("kind"), data.get("key"), data.get("bead")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")
        if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable():
            raise ValueError("key must be a non-empty text of printable ASCII characters")
        if bead is not None and not (isinstance(bead, str) and valid_name(bead)):
            raise ValueError("bead must be a bead id or null")
        if kind == "student" and bead is None:
            raise ValueError("a student's grant needs its bead")
        return cls(
            kind=kind,
            key=key,
            bead=bead,
            models=_names(data, "models"),
            limits=Limits.parse(data.get("limits")),
            prices=_prices(data.get("prices") or {}),
            deadline=_number(data, "deadline"),
            rehearsal_models=frozenset(_names(data, "rehearsal_models")),
            egress=_places(data),
            egress_bytes=_whole(data, "egress_bytes"),
        )

    def as_json(self) -> dict[str, Any]:
        """Return what ``parse`` reads, the key included: for the state file only."""
        return {
            "kind": self.kind,
            "bead": self.bead,
            "key": self.key,
            "models": list(self.models),
            "limits": {
                "calls": self.limits.calls,
                "tokens": self.limits.tokens,
                "cost_usd": self.limits.cost_usd,
                "parallel": self.limits.parallel,
            },
            "prices": {
                alias: None if price is None else {"input": price.input, "output": price.output}
                for alias, price in self.prices.items()
            },
            "deadline": self.deadline,
            "rehearsal_models": sorted(self.rehearsal_models),
            "egress": list(self.egress),
            "egress_bytes": self.egress_bytes,
        }


def _names(data: Mapping[str, Any], field_name: str) -> tuple[str, ...]:
    value = data.get(field_name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{field_name} must be a list of aliases")
    return tuple(value)


def _places(data: Mapping[str, Any]) -> tuple[str, ...]:
    places = _names(data, "egress")
    for place in places:
        if not valid_place(place):
            raise ValueError(f"egress must be a list of name:port, not {place[:80]!r}")
    return places


def _number(data: Mapping[str, Any], field_name: str) -> float | None:
    value = data.get(field_name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{field_name} must be a number of at least 0, or null")
    return float(value)


def _whole(data: Mapping[str, Any], field_name: str) -> int | None:
    value = _number(data, field_name)
    if value is not None and value != int(value):
        raise ValueError(f"{field_name} must be a whole number, or null")
    return None if value is None else int(value)


def _prices(data: Any) -> dict[str, Price | None]:
    if not isinstance(data, dict):
        raise ValueError("prices must be an object of alias to price")  # noqa: TRY004
    prices: dict[str, Price | None] = {}
    for alias, price in data.items():
        if price is None:
            prices[alias] = None
            continue
        if not isinstance(price, dict):
            raise ValueError(f"the price of {alias} must be an object with input and output, or null")  # noqa: TRY004
        into, out = _number(price, "input"), _number(price, "output")
        prices[alias] = None if into is None or out is None else Price(into, out)
    return prices


@dataclass(slots=True)
class Counters:
    """What was used. ``calls`` is every call sent upstream, also those that ``failed`` there.

    ``unmetered`` are calls for which upstream reported no usage; ``cost_unknown`` those without a price or usage.
    """

    calls: int = 0
    refused: int = 0
    failed: int = 0
    unmetered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_known_usd: float = 0.0
    cost_unknown: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def as_json(self) -> dict[str, Any]:
        """Return the counters; ``cost_usd`` is null as soon as the cost of one call is unknown."""
        known = round(self.cost_known_usd, 9)
        return {
            "calls": self.calls,
            "refused": self.refused,
            "failed": self.failed,
            "unmetered": self.unmetered,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": None if self.cost_unknown else known,
            "cost_known_usd": known,
            "cost_unknown": self.cost_unknown,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counters:
        """Read what ``as_json`` wrote."""
        names = (name for name in cls.__slots__ if name in data)
        return cls(**{name: data[name] for name in names})


def near(limits: Limits, total: Counters) -> dict[str, float]:
    """Return which limits are used to four fifths or more, each with the part that is used."""
    used = {
        "calls": (total.calls, limits.calls),
        "tokens": (total.tokens, limits.tokens),
        "cost_usd": (total.cost_known_usd, limits.cost_usd),
    }
    parts = {name: spent / limit for name, (spent, limit) in used.items() if limit}
    return {name: round(part, 3) for name, part in parts.items() if part >= WARN_AT}


@dataclass(slots=True)
class Grant:
    """One grant: its terms, its counters and the calls in flight."""

    name: str
    terms: Terms
    total: Counters = field(default_factory=Counters)
    by_bead: dict[str, Counters] = field(default_factory=dict)
    stopped: str | None = None
    last_error: dict[str, Any] | None = None
    rehearsal: bool = False
    revoked: bool = False
    in_flight: set[Call] = field(default_factory=set)
    buffered: int = 0  # bytes of request bodies held in memory now
    refusals_logged: int = 0
    egress_used: int = 0  # bytes
    day: Day | None = None  # the school's, which it counts for too

    def expired(self) -> bool:
        """Return whether its deadline has passed."""
        return self.terms.deadline is not None and time.time() >= self.terms.deadline

    def bead_of(self, claimed: str | None) -> str | None:
        """Return the bead that a call counts for: a teacher says which, everybody else has one (or none)."""
        if self.terms.kind == "teacher" and claimed and valid_name(claimed):
            return claimed
        return self.terms.bead

    def counters(self, bead: str | None) -> list[Counters]:
        """Return the counters that a call for ``bead`` moves."""
        shared = [self.total] if self.day is None else [self.total, self.day.today()]
        if bead is None:
            return shared
        found = self.by_bead.pop(bead, None) or Counters()
        self.by_bead[bead] = found  # moved to the end: the oldest is first
        while len(self.by_bead) > BEADS_KEPT:
            del self.by_bead[next(iter(self.by_bead))]
        return [*shared, found]

    def overrun(self) -> dict[str, Any] | None:
        """Return by how much a limit was passed, or None. Tokens and cost are known only after a call."""
        limits, total = self.terms.limits, self.total
        over: dict[str, Any] = {}
        if limits.tokens is not None and total.tokens > limits.tokens:
            over["tokens"] = total.tokens - limits.tokens
        if limits.cost_usd is not None and total.cost_known_usd > limits.cost_usd:
            over["cost_usd"] = round(total.cost_known_usd - limits.cost_usd, 9)
        return over or None

    def usage(self) -> dict[str, Any]:
        """Return the usage of the contract; it never holds the key."""
        return {
            "grant": self.name,
            "kind": self.terms.kind,
            "bead": self.terms.bead,
            **self.total.as_json(),
            "stopped": self.stopped,
            "overrun": self.overrun(),
            "near": near(self.terms.limits, self.total),
            "egress_bytes_used": self.egress_used,
            "last_error": self.last_error,
            "rehearsal": self.rehearsal,
            "revoked": self.revoked,
            "in_flight": len(self.in_flight),
            "terms": {name: value for name, value in self.terms.as_json().items() if name != "key"},
            "by_bead": {bead: counters.as_json() for bead, counters in self.by_bead.items()},
        }

    def restore(self, usage: Mapping[str, Any]) -> None:
        """Take over a usage that was saved before a restart."""
        self.total = Counters.from_json(usage)
        self.by_bead = {bead: Counters.from_json(data) for bead, data in usage.get("by_bead", {}).items()}
        self.stopped = usage.get("stopped")
        self.last_error = usage.get("last_error")
        self.rehearsal = bool(usage.get("rehearsal"))
        self.egress_used = int(usage.get("egress_bytes_used") or 0)
        self.revoked = bool(usage.get("revoked"))
