from __future__ import annotations

import re
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bookbag import new_bookbag, shapes, validate_bookbag, validate_finding
from orchestrator.bookbag.record import FIELDS, FINDING_FIELDS, REVIEW_FIELDS, TEACHERS, now
from orchestrator.bookbag.validate import KINDS

R2 = [
    "bead",
    "task",
    "student",
    "domain",
    "difficulty",
    "output",
    "lens",
    "cto_verdict",
    "coo_verdict",
    "findings",
    "ac_met",
    "files_changed",
    "verification",
    "summary",
    "blockers",
    "accepted",
    "timestamp",
    "schema_version",
    "repo",
    "branch",
    "base_sha",
    "head_sha",
    "state",
]


def test_the_record_has_the_fields_of_its_requirement():
    assert set(R2) <= set(FIELDS)
    for teacher in TEACHERS:
        for name in ("findings", "score", "confidence", "lens", "reviewed_at", "seal"):
            assert f"{teacher}_{name}" in FIELDS


def test_the_shape_for_the_type_checker_is_the_table_of_the_program():
    assert list(get_type_hints(shapes.Bookbag)) == list(FIELDS)
    assert tuple(get_type_hints(shapes.Finding)) == FINDING_FIELDS
    assert {field.kind for field in FIELDS.values()} == set(KINDS)


def test_time_is_iso_8601_in_utc():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", now())


def test_each_known_field_is_checked_for_its_kind():
    for name in FIELDS:
        wrong = {**new_bookbag("b"), name: {1: 2} if FIELDS[name].kind != "text or object" else 5}
        if FIELDS[name].kind == "object or null":
            wrong[name] = "text"
        assert any(problem.startswith(f"{name} ") for problem in validate_bookbag(wrong)), name
        missing = new_bookbag("b")
        del missing[name]
        assert f"{name} is missing" in validate_bookbag(missing)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"accepted": True}, "accepted is true without both verdicts PASS"),
        ({"accepted": True, "state": "CTO_REVIEWED", "cto_verdict": "PASS"}, "accepted is true without"),
        ({"accepted": True, "state": "REVIEWED", "cto_verdict": "PASS", "coo_verdict": "FAIL"}, "one is FAIL"),
        ({"state": "REVIEWED", "cto_verdict": "PASS"}, "needs coo_verdict"),
        ({"state": "WRITTEN", "cto_verdict": "PASS"}, "has no cto_verdict yet"),
        ({"cto_verdict": "pass"}, "cto_verdict is 'pass'"),
        ({"cto_verdict": None}, "cto_verdict is None"),
        ({"coo_score": 101}, "coo_score is 101"),
        ({"coo_score": True}, "coo_score is True"),
        ({"head_sha": "HEAD"}, "head_sha is 'HEAD'"),
        ({"timestamp": "2026-01-01T00:00:00+02:00"}, "timestamp is"),
        ({"timestamp": "yesterday"}, "timestamp is"),
        ({"state": []}, "state is"),
        ({"schema_version": 2}, "schema_version is 2"),
        ({"findings": ["x"]}, "findings[0] is 'x'"),
        ({"cto_findings": [{"severity": "BAD"}]}, "cto_findings[0] has severity 'BAD'"),
    ],
)
def test_validation_names_what_is_wrong(fields, problem):
    assert any(problem in found for found in validate_bookbag({**new_bookbag("b"), **fields}))


def test_a_finding_needs_all_of_its_fields_as_text(finding):
    assert validate_finding(finding) == []
    for name in finding:
        assert validate_finding({**finding, name: 3})
        assert validate_finding({key: value for key, value in finding.items() if key != name})


def test_unknown_fields_are_no_problem():
    assert validate_bookbag({**new_bookbag("b"), "colour": {"x": 1}}) == []


@given(
    st.dictionaries(
        st.sampled_from(list(FIELDS)) | st.text(),
        st.none() | st.text() | st.integers() | st.lists(st.none()) | st.dictionaries(st.text(), st.none()),
    ),
)
def test_validation_never_raises(bag: dict[str, Any]):
    assert isinstance(validate_bookbag({**new_bookbag("b"), **bag}), list)
    assert isinstance(validate_bookbag(bag), list)


def test_a_teacher_fills_its_own_fields_only():
    for teacher in TEACHERS:
        own = {name for name, field in FIELDS.items() if field.owner == teacher}
        assert own == {f"{teacher}_{name}" for name in REVIEW_FIELDS}
