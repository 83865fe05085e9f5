"""The school's budget of a day: what all grants together may use between two midnights (UTC)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.gate.grants import Counters, Limits, near

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.gate.meters import Call


@dataclass(slots=True)
class Day:
    """Counters of today, with their limits. A call counts for the day in which it ends."""

    limits: Limits = field(default_factory=Limits)
    date: str = ""
    total: Counters = field(default_factory=Counters)
    in_flight: set[Call] = field(default_factory=set)

    def today(self) -> Counters:
        """Return today's counters; at midnight they begin anew."""
        now = time.strftime("%Y-%m-%d", time.gmtime())
        if now != self.date:
            self.date, self.total = now, Counters()
        return self.total

    def as_json(self) -> dict[str, Any]:
        """Return date, limits, counters, and what is spent or nearly so."""
        total = self.today()
        return {
            "date": self.date,
            "limits": {"calls": self.limits.calls, "tokens": self.limits.tokens, "cost_usd": self.limits.cost_usd},
            **total.as_json(),
            "near": near(self.limits, total),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over what was saved before a restart."""
        self.limits = Limits.parse(data.get("limits"))
        self.date, self.total = str(data.get("date") or ""), Counters.from_json(data)
