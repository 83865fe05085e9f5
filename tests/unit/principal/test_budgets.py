"""What is said of budgets, and what a spent day refuses."""

import pytest

from orchestrator.engine.base import Exited
from orchestrator.errors import BlockedError
from orchestrator.leaf.ending import classify
from orchestrator.principal.budgets import check_day, notes_of
from orchestrator.sandbox.outcome import Outcome
from orchestrator.settings import Settings


class Gate:
    """Answers as the gate does."""

    def __init__(self, **near):
        self.near, self.told = near, None

    def limit_day(self, limits):
        self.told = limits
        return {"date": "2030-01-01", "near": self.near}


def test_the_gate_is_told_the_limits_and_a_nearly_spent_day_is_a_warning():
    gate = Gate(tokens=0.85)
    assert check_day(gate, Settings(day_max_tokens=1000)) == ["85% of the school's budget of tokens for today are used"]
    assert gate.told == {"calls": None, "tokens": 1000, "cost_usd": None}


def test_a_spent_day_begins_no_bead():
    with pytest.raises(BlockedError, match=r"calls and cost for 2030-01-01"):
        check_day(Gate(calls=1.0, cost_usd=1.2), Settings())


def test_a_beads_own_budget_is_spoken_of():
    assert notes_of(None) == []
    assert notes_of({"near": {"calls": 0.9}, "overrun": None}) == ["90% of the budget of calls were used"]
    assert notes_of({"near": {}, "overrun": {"tokens": 120}}) == ["the budget of tokens was overrun by 120"]


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        ({"stopped": "calls"}, "the budget of calls was spent"),
        ({"stopped": "tokens", "overrun": {"tokens": 7}}, "the budget of tokens was spent, overrun by 7 tokens"),
        ({"stopped": "cost", "overrun": {"cost_usd": 0.25}}, "the budget of cost was spent, overrun by 0.25 USD"),
        ({"stopped": "day-calls"}, "the school's budget of calls for the day was spent"),
    ],
)
def test_the_outcome_says_which_budget_and_by_how_much(usage, reason):
    ending = classify(Exited(6), usage=usage)
    assert (ending.outcome, ending.reason) == (Outcome.BUDGET_EXHAUSTED, reason)
