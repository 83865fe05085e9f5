"""R-39 and R-41 as tables of examples."""

import pytest

from orchestrator.principal.acceptance import decide
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.scoring import blend, current, evaluate_and_update, task_score
from orchestrator.sandbox.outcome import Outcome

GOOD = {"cto_verdict": "PASS", "coo_verdict": "PASS", "cto_score": 92, "coo_score": 100}


@pytest.mark.parametrize(
    ("change", "verification", "accepted"),
    [
        ({}, "passed", True),
        ({}, "not_configured", True),
        ({}, "failed", False),
        ({}, "could_not_run", False),
        ({"cto_verdict": "FAIL"}, "passed", False),
        ({"coo_verdict": "FAIL"}, "passed", False),
        ({"coo_verdict": ""}, "passed", False),
        ({"cto_score": 50}, "passed", True),
        ({"cto_score": 49.9}, "passed", False),
        ({"cto_score": None}, "passed", False),
        ({"cto_score": True}, "passed", False),
        ({"coo_score": "100"}, "passed", False),
        ({"coo_findings": [{"severity": "CRITICAL"}]}, "passed", False),
        ({"coo_findings": [{"severity": "LOW"}]}, "passed", True),
    ],
)
def test_accepted_needs_both_judges_their_scores_and_the_check(change, verification, accepted):
    decision = decide({**GOOD, **change}, verification)
    assert decision.accepted is accepted
    assert bool(decision.reasons) is not accepted


@pytest.mark.parametrize(
    ("accepted", "teachers", "score"),
    [
        (True, (100, 100), 100),
        (True, (50, 50), 60),
        (False, (100, 90), 40),
        (False, (30, 40), 35),
        (True, (70, 80), 75),
    ],
)
def test_task_score(accepted, teachers, score):
    assert task_score(accepted=accepted, teachers=teachers) == score


def test_a_profiles_score_moves_by_three_tenths_and_stays_in_bounds():
    assert blend(50, 100) == pytest.approx(65)
    assert blend(0, 0) == 0
    assert blend(100, 100) == 100


def test_a_bead_is_scored_once_and_its_cause_is_kept(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        first = evaluate_and_update(ledger, "student-coder", "b1", Outcome.ACCEPTED, teachers=(100, 100))
        again = evaluate_and_update(ledger, "student-coder", "b1", Outcome.ACCEPTED, teachers=(100, 100))
        assert first == again
        assert first.old == 50
        assert first.new == pytest.approx(65)
        assert current(ledger, "student-coder") == pytest.approx(65)


def test_crossing_a_gate_is_told(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        change = evaluate_and_update(ledger, "p", "b1", Outcome.TIMED_OUT, teachers=None)
        assert change.new == pytest.approx(35)
        assert change.gates_crossed == ("hard",)


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.students_fault])
def test_infrastructure_and_cancellation_score_nothing(tmp_path, outcome):
    with Ledger(tmp_path / "l.db") as ledger:
        assert evaluate_and_update(ledger, "p", "b1", outcome, teachers=None) is None
        assert current(ledger, "p") == 50


def test_exit_codes_are_those_of_the_design():
    codes = {outcome.value: outcome.exit_code for outcome in Outcome}
    assert codes == {
        "accepted": 0, "rejected": 1, "task_failed": 3, "timed_out": 4, "out_of_memory": 5, "budget_exhausted": 6,
        "gateway_denied": 6, "sandbox_unavailable": 7, "lost": 7, "not_reviewed": 9, "blocked": 10,
        "disk_exceeded": 11, "cancelled": 130,
    }  # fmt: skip
