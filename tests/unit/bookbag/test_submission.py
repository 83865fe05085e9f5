from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bookbag import check_submission, make_submission, new_bookbag, write_submission
from orchestrator.bookbag.record import FIELDS
from orchestrator.bookbag.submission import MAX_BYTES, MAX_ITEMS, STUDENT_FIELDS
from orchestrator.errors import BookbagError, InvalidBeadError


def submission(**changes):
    return json.dumps({**new_bookbag("b"), **changes}).encode()


def test_what_a_student_writes_comes_through(tmp_path):
    write_submission(str(tmp_path), "bookbag.json", "b", output="o", summary="s", ac_met=["1"], blockers=["2"])
    fields, dropped = check_submission((tmp_path / "bookbag.json").read_bytes(), "b")
    assert fields == {"output": "o", "summary": "s", "ac_met": ["1"], "blockers": ["2"]}
    assert dropped == []


def test_only_a_students_fields_pass_and_the_rest_is_named():
    data = submission(
        output="o",
        head_sha="f" * 40,
        task="easier",
        cto_score=100,
        verification={"status": "passed"},
        odd=1,
        findings=["x"],
    )
    fields, dropped = check_submission(data, "b")
    assert set(fields) == set(STUDENT_FIELDS) == {"output", "summary", "ac_met", "blockers"}
    assert set(dropped) == {"head_sha", "task", "cto_score", "verification", "odd", "findings"}


def test_a_submission_may_be_short():
    assert check_submission(b'{"bead": "b", "output": "x"}', "b") == ({"output": "x"}, [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bead": "other"}, "for bead 'other'"),
        ({"bead": None}, "for bead 'None'"),
        ({"cto_verdict": "PASS"}, "verdict of cto"),
        ({"coo_verdict": "FAIL"}, "verdict of coo"),
        ({"coo_verdict": None}, "verdict of coo"),
        ({"accepted": True}, "accepted"),
        ({"accepted": 1}, "accepted"),
        ({"accepted": 0}, "accepted"),
        ({"state": "REVIEWED"}, "'REVIEWED'"),
        ({"cto_seal": {}}, "seal of cto"),
        ({"coo_seal": "x"}, "seal of coo"),
        ({"schema_version": 2}, "schema_version 2"),
        ({"schema_version": True}, "schema_version True"),
        ({"output": 5}, "output is not text"),
        ({"summary": None}, "summary is not text"),
        ({"blockers": "x"}, "blockers is not a list"),
        ({"ac_met": [1]}, "ac_met is not a list"),
        ({"ac_met": ["x"] * (MAX_ITEMS + 1)}, "ac_met has 201 items"),
    ],
)
def test_a_claim_to_judgment_or_a_wrong_shape_refuses_the_whole(changes, reason):
    with pytest.raises(BookbagError, match=reason):
        check_submission(submission(**changes), "b")


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"bead": "b", "x": NaN}', b'{"bead":' * 100_000, b"1" * 5000]
)
def test_what_is_no_json_object_is_refused(data):
    with pytest.raises(BookbagError, match="the submission"):
        check_submission(data, "b")


def test_the_limit_is_in_bytes():
    with pytest.raises(BookbagError, match="limit is 1048576"):
        check_submission(b" " * (MAX_BYTES + 1), "b")


def test_a_bead_outside_the_grammar_is_refused():
    with pytest.raises(InvalidBeadError):
        check_submission(b"{}", "../b")
    with pytest.raises(InvalidBeadError):
        make_submission("../b")


@pytest.mark.parametrize("letter", ["x", "\n", "ä", "😀", "\ud800"])
def test_a_long_output_is_cut_to_fit_and_says_so(letter):
    data = make_submission("b", output=letter * (2 * MAX_BYTES), summary="kept")
    assert MAX_BYTES - 300 < len(data) <= MAX_BYTES
    fields, _ = check_submission(data, "b")
    assert fields["summary"] == "kept"
    kept, _, note = fields["output"].rpartition("\n[cut here: ")
    assert set(kept) == {letter}
    assert int(note.split()[0]) + len(kept) == 2 * MAX_BYTES


def test_an_output_that_just_fits_is_not_cut():
    bare = len(make_submission("b"))
    output = "x" * (MAX_BYTES - bare - 102)
    assert check_submission(make_submission("b", output=output), "b")[0]["output"] == output


def test_what_can_not_be_cut_is_refused_where_it_is_made():
    with pytest.raises(BookbagError, match="limit"):
        make_submission("b", summary="x" * MAX_BYTES)
    with pytest.raises(BookbagError, match="201 items"):
        make_submission("b", blockers=["x"] * (MAX_ITEMS + 1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=300) | json_values.map(lambda value: json.dumps(value).encode()))
@settings(deadline=None)
def test_bytes_of_any_kind_raise_typed_errors_only(data):
    with pytest.raises(BookbagError):
        check_submission(data, "b")


@given(st.dictionaries(st.sampled_from(list(FIELDS)) | st.text(), json_values, max_size=8), st.booleans())
@settings(deadline=None, max_examples=300)
def test_objects_of_any_kind_give_students_fields_or_a_typed_error(changes, whole):
    bag = {**(new_bookbag("b") if whole else {"bead": "b"}), **changes, "bead": "b"}
    try:
        fields, dropped = check_submission(json.dumps(bag).encode(), "b")
    except BookbagError:
        return
    assert set(fields) <= set(STUDENT_FIELDS)
    assert all(isinstance(fields.get(name, ""), str) for name in ("output", "summary"))
    assert not set(dropped) & set(fields)
    assert not bag.get("cto_verdict")
    assert not bag.get("accepted")
