from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ReviewError
from orchestrator.review.scoring import FLOORS, SEVERITIES, score, verdict


@pytest.mark.parametrize(
    ("difficulty", "weights", "floor"),
    [
        ("easy", (25, 8, 4, 2), 50),
        ("medium", (25, 12, 6, 3), 40),
        ("hard", (25, 15, 8, 3), 30),
        ("diploma", (25, 15, 8, 3), 30),
        ("blocker", (25, 15, 8, 3), 30),
    ],
)
def test_each_difficulty_has_its_table_of_r38(difficulty, weights, floor):
    assert score([], difficulty) == 100
    for severity, weight in zip(SEVERITIES, weights, strict=True):
        assert score([severity], difficulty) == 100 - weight
    assert score(["CRITICAL"] * 4, difficulty) == floor
    assert score(SEVERITIES, difficulty) == max(floor, 100 - sum(weights))


@pytest.mark.parametrize("said", ["PASS", "FAIL"])
@pytest.mark.parametrize("severity", ["CRITICAL", "HIGH"])
def test_a_critical_or_high_finding_fails_whatever_the_model_says_r38(said, severity):
    assert verdict([severity, "LOW"], said) == "FAIL"


def test_lesser_findings_pass_and_a_fail_of_the_model_stands():
    assert verdict(["MEDIUM", "LOW"], "PASS") == "PASS"
    assert verdict(["LOW"], "FAIL") == "FAIL"
    assert verdict([], "anything else") == "FAIL"


def test_an_unknown_difficulty_or_severity_is_an_error_and_no_score():
    with pytest.raises(ReviewError, match="nightmare"):
        score([], "nightmare")
    with pytest.raises(ReviewError, match="SEVERE"):
        score(["SEVERE"], "easy")


@given(st.lists(st.sampled_from(SEVERITIES), max_size=60), st.sampled_from(sorted(FLOORS)))
def test_a_score_stays_between_floor_and_100_and_never_rises_with_a_finding(severities, difficulty):
    first = score(severities, difficulty)
    assert FLOORS[difficulty] <= first <= 100
    assert score([*severities, "LOW"], difficulty) <= first
