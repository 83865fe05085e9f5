from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ReviewError
from orchestrator.review.answer import FINDINGS_LIMIT, Answer, parse_answer


def test_an_object_alone_and_in_one_fence_give_the_same(make_answer):
    text = json.dumps(make_answer("PASS", "LOW"), indent=1)
    alone = parse_answer(text)
    assert alone == parse_answer(f"Here is my review:\n```json\n{text}\n```\nThank you.")
    assert alone == parse_answer(f"<think>PASS? FAIL? {{}}</think>\n{text}")
    assert alone.findings[0].as_dict() == make_answer("PASS", "LOW")["findings"][0]
    assert str(alone.ac_met[0]) == "x is 2 (src/a.py:1)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("PASS", "neither"),
        ("The work is fine, verdict PASS.", "neither"),
        ('The answer is {"verdict": "PASS"}', "neither"),
        ('["PASS"]', "neither"),
        ("{", "not valid JSON"),
        ("{}{}", "not valid JSON"),
        ("{}", "verdict"),
        ('{"verdict": "FAIL", "verdict": "PASS"}', "same key twice"),
        ('{"confidence": NaN}', "NaN"),
        ("```\n{}\n```\n```\n{}\n```", "2 fences"),
        ("```json\n[]\n```", "not an object"),
        ("{" * 100_000, "not valid JSON"),
        ('{"a":' * 60_000, "not valid JSON"),
        ("9" * 500_000, "limit"),
    ],
)
def test_what_is_not_clearly_an_answer_is_refused_r37(text, reason):
    with pytest.raises(ReviewError, match=reason):
        parse_answer(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdict": "MAYBE"}, "verdict"),
        ({"verdict": None}, "verdict"),
        ({"verdict": ["PASS"]}, "verdict"),
        ({"confidence": True}, "confidence"),
        ({"confidence": 80}, "confidence"),
        ({"confidence": "high"}, "confidence"),
        ({"summary": "  "}, "summary"),
        ({"summary": 3}, "summary"),
        ({"findings": None}, "findings"),
        ({"findings": {}}, "findings"),
        ({"findings": ["bad"]}, "Finding 1"),
        ({"findings": [{"severity": "LOW"}]}, "issue_class"),
        ({"ac_met": "all"}, "ac_met"),
        ({"ac_met": [{"criterion": "x", "met": "yes"}]}, "met"),
        ({"ac_met": [{"criterion": "x", "met": False}]}, "not met"),
    ],
)
def test_a_wrong_field_is_named(make_answer, change, reason):
    with pytest.raises(ReviewError, match=reason):
        parse_answer(json.dumps(make_answer("PASS", **change)))


def test_a_fail_must_say_why(make_answer):
    with pytest.raises(ReviewError, match="FAIL without a finding"):
        parse_answer(json.dumps(make_answer("FAIL")))


def test_a_severity_outside_of_r10_is_refused(make_answer):
    with pytest.raises(ReviewError, match=r"Finding 1.*severity"):
        parse_answer(json.dumps(make_answer("PASS", "BLOCKER")))


def test_findings_are_worst_first_and_those_over_the_limit_are_the_least(make_answer):
    answer = parse_answer(json.dumps(make_answer("PASS", *["LOW"] * FINDINGS_LIMIT, "medium", "Critical")))
    assert [finding.severity for finding in answer.findings[:3]] == ["CRITICAL", "MEDIUM", "LOW"]
    assert (len(answer.findings), answer.dropped) == (FINDINGS_LIMIT, 2)


def test_long_and_hidden_text_is_clipped_and_made_visible(make_answer):
    answer = parse_answer(json.dumps(make_answer("PASS", summary="\x1b[2J\u202e" + "a" * 10_000)))
    assert answer.summary.startswith("[U+001B][2J[U+202E]aaa")
    assert len(answer.summary) == 4000


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["verdict", "confidence", "summary", "findings", "ac_met", "extra"])
FINDING_KEYS = st.sampled_from(
    ["section", "issue_class", "severity", "citation", "description", "suggestion", "met", "criterion"]
)
VALUES = (
    JSON
    | st.sampled_from(["PASS", "FAIL", "LOW", "HIGH", 0.5])
    | st.lists(
        st.dictionaries(FINDING_KEYS, JSON | st.sampled_from(["LOW", "CRITICAL", True, "x"]), max_size=8), max_size=3
    )
)


@given(st.text() | st.dictionaries(KEYS, VALUES).map(json.dumps) | JSON.map(json.dumps))
def test_any_text_gives_an_answer_or_a_review_error(text):
    try:
        answer = parse_answer(text)
    except ReviewError:
        return
    assert isinstance(answer, Answer)
    assert answer.verdict in {"PASS", "FAIL"}
    json.dumps([finding.as_dict() for finding in answer.findings]).encode()
