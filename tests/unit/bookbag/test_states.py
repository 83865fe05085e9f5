from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.bookbag import advance, awaits, new_bookbag, state_after_review, transition, validate_bookbag
from orchestrator.bookbag.record import STATES, TEACHERS
from orchestrator.errors import TransitionError

ACTORS = ("student", "principal", "cto", "coo")
ALLOWED = {
    (None, "WRITTEN", "student"),
    (None, "WRITTEN", "principal"),
    ("WRITTEN", "CTO_REVIEWED", "cto"),
    ("WRITTEN", "COO_REVIEWED", "coo"),
    ("CTO_REVIEWED", "REVIEWED", "coo"),
    ("COO_REVIEWED", "REVIEWED", "cto"),
    ("WRITTEN", "REVIEWED", "principal"),
    ("CTO_REVIEWED", "REVIEWED", "principal"),
    ("COO_REVIEWED", "REVIEWED", "principal"),
    ("REVIEWED", "SCORED", "principal"),
    ("SCORED", "DISPOSED", "principal"),
}


def test_exactly_these_moves_exist_for_exactly_these_actors():
    for move in itertools.product((None, *STATES), STATES, ACTORS):
        if move in ALLOWED:
            assert transition(*move) == move[1]
        else:
            with pytest.raises(TransitionError):
                transition(*move)


@given(old=st.none() | st.text(), new=st.text(), actor=st.text())
def test_unknown_states_and_actors_are_refused(old, new, actor):
    if (old, new, actor) not in ALLOWED:
        with pytest.raises(TransitionError):
            transition(old, new, actor)


def test_either_teacher_may_be_first():
    assert state_after_review("WRITTEN", "cto") == "CTO_REVIEWED"
    assert state_after_review("CTO_REVIEWED", "coo") == "REVIEWED"
    assert state_after_review("WRITTEN", "coo") == "COO_REVIEWED"
    assert state_after_review("COO_REVIEWED", "cto") == "REVIEWED"


@pytest.mark.parametrize(
    ("state", "teacher"),
    [
        ("CTO_REVIEWED", "cto"),
        ("REVIEWED", "coo"),
        ("SCORED", "cto"),
        ("DISPOSED", "coo"),
        ("WRITTEN", "student"),
        ("", "cto"),
    ],
)
def test_no_verdict_is_added_twice_or_late(state, teacher):
    with pytest.raises(TransitionError):
        state_after_review(state, teacher)


def test_a_teacher_acts_while_its_own_verdict_is_empty():
    bag = new_bookbag("b")
    assert awaits(bag, "cto")
    assert awaits(bag, "coo")
    bag |= {"cto_verdict": "FAIL", "state": "CTO_REVIEWED"}
    assert not awaits(bag, "cto")
    assert awaits(bag, "coo")
    assert not awaits(bag, "dean")


def test_the_synchronous_way_fills_both_verdicts_in_one_move():
    bag = new_bookbag("b") | {"cto_verdict": "PASS", "coo_verdict": "FAIL"}
    assert advance(bag, "REVIEWED", "principal")["state"] == "REVIEWED"
    with pytest.raises(TransitionError, match="needs coo_verdict"):
        advance({**bag, "coo_verdict": ""}, "REVIEWED", "principal")


def test_one_fail_can_not_be_accepted():
    bag = new_bookbag("b") | {"cto_verdict": "PASS", "coo_verdict": "FAIL", "state": "REVIEWED", "accepted": True}
    with pytest.raises(TransitionError, match="one is FAIL"):
        advance(bag, "SCORED", "principal")
    assert advance({**bag, "accepted": False}, "SCORED", "principal")["state"] == "SCORED"


def test_a_move_leaves_the_record_it_was_given_alone():
    bag = new_bookbag("b") | {"cto_verdict": "PASS"}
    advance(bag, "CTO_REVIEWED", "cto")
    assert bag["state"] == "WRITTEN"


class Life(RuleBasedStateMachine):
    """Actors do what they like; whatever is let through leaves a record that does not contradict itself."""

    def __init__(self):
        super().__init__()
        self.bag = new_bookbag("b")
        self.path = ["WRITTEN"]

    def _try(self, changed, new, actor):
        allowed = (self.bag["state"], new, actor) in ALLOWED
        try:
            self.bag = advance(changed, new, actor)
        except TransitionError:
            return
        assert allowed
        self.path.append(new)

    @rule(teacher=st.sampled_from(TEACHERS), verdict=st.sampled_from(["PASS", "FAIL"]))
    def review(self, teacher, verdict):
        if awaits(self.bag, teacher):
            new = state_after_review(self.bag["state"], teacher)
            self._try({**self.bag, f"{teacher}_verdict": verdict}, new, teacher)
            assert self.bag["state"] == new
        else:
            with pytest.raises(TransitionError):
                state_after_review(self.bag["state"], teacher)

    @rule(cto=st.sampled_from(["", "PASS", "FAIL"]), coo=st.sampled_from(["", "PASS", "FAIL"]))
    @precondition(lambda self: self.bag["state"] == "WRITTEN")
    def review_synchronously(self, cto, coo):
        self._try({**self.bag, "cto_verdict": cto, "coo_verdict": coo}, "REVIEWED", "principal")

    @rule(accepted=st.booleans(), new=st.sampled_from(["SCORED", "DISPOSED"]))
    def conclude(self, accepted, new):
        self._try({**self.bag, "accepted": accepted}, new, "principal")

    @rule(new=st.sampled_from(STATES), actor=st.sampled_from(ACTORS))
    def meddle(self, new, actor):
        self._try(self.bag, new, actor)

    @invariant()
    def the_record_is_consistent(self):
        assert validate_bookbag(self.bag) == []
        if self.bag["accepted"]:
            assert self.bag["cto_verdict"] == self.bag["coo_verdict"] == "PASS"

    @invariant()
    def time_does_not_run_backwards(self):
        order = ["WRITTEN", "CTO_REVIEWED", "COO_REVIEWED", "REVIEWED", "SCORED", "DISPOSED"]
        assert [order.index(state) for state in self.path] == sorted({order.index(state) for state in self.path})
        assert not {"CTO_REVIEWED", "COO_REVIEWED"} <= set(self.path)


TestLife = Life.TestCase
