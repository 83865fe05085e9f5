from __future__ import annotations

import copy
import hashlib
import hmac
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.bookbag import canonical, key_id, make_seal, output_digest, verify_seal
from orchestrator.errors import SealError

KEY = b"k" * 32
OLD = b"o" * 32


def test_a_seal_verifies_after_a_way_through_json(reviewed):
    verify_seal(KEY, reviewed, "cto")
    verify_seal(KEY, json.loads(json.dumps(reviewed)), "cto")


def test_the_seal_has_the_parts_of_the_contract(reviewed):
    seal = reviewed["cto_seal"]
    assert set(seal) == {"v", "key_id", "mac", "evidence_sha256", "output_sha256", "mode", "model"}
    assert seal["key_id"] == hashlib.sha256(KEY).hexdigest()[:12] == key_id(KEY)


def test_the_mac_is_hmac_sha256_over_canonical_json(reviewed):
    """Computed here once more from the description alone."""
    seal = reviewed["cto_seal"]
    names = ("verdict", "score", "confidence", "findings", "ac_met", "summary", "lens", "reviewed_at")
    payload = {name: reviewed[f"cto_{name}"] for name in names}
    payload |= {name: value for name, value in seal.items() if name != "mac"}
    payload |= {"bead": reviewed["bead"], "head_sha": reviewed["head_sha"], "teacher": "cto"}
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    assert seal["mac"] == hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


SEALED = ["bead", "head_sha", "output", *(
    f"cto_{name}" for name in ("verdict", "score", "confidence", "findings", "ac_met", "summary", "lens", "reviewed_at")
)]  # fmt: skip


@pytest.mark.parametrize("name", SEALED)
def test_a_changed_missing_or_emptied_field_breaks_it(reviewed, name):
    others = {"cto_verdict": "FAIL", "cto_score": 97, "cto_confidence": 0.9, "cto_findings": []}
    for value in (others.get(name, "other"), None, "", [reviewed[name]]):
        with pytest.raises(SealError):
            verify_seal(KEY, {**reviewed, name: value}, "cto")
    without = dict(reviewed)
    del without[name]
    with pytest.raises(SealError):
        verify_seal(KEY, without, "cto")


@pytest.mark.parametrize("name", ["v", "key_id", "mac", "evidence_sha256", "output_sha256", "mode", "model"])
def test_a_changed_or_missing_part_of_the_seal_breaks_it(reviewed, name):
    seal = reviewed["cto_seal"]
    others = {"v": 2, "mode": "sync", "model": "better", "mac": "0" * 64}
    for value in (others.get(name, "a" * 64), None, "", 1.0, [], {}, True):
        with pytest.raises(SealError):
            verify_seal(KEY, {**reviewed, "cto_seal": {**seal, name: value}}, "cto")
    with pytest.raises(SealError):
        verify_seal(KEY, {**reviewed, "cto_seal": {key: value for key, value in seal.items() if key != name}}, "cto")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_change_anywhere_in_what_is_sealed_breaks_it(reviewed, data):
    bag = copy.deepcopy(reviewed)
    name = data.draw(st.sampled_from(SEALED))
    text = json.dumps(bag[name])
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters(codec="ascii"))
    try:
        bag[name] = json.loads(text[:at] + letter + text[at + 1 :])
    except ValueError:
        return
    if canonical_or_none(bag[name]) == canonical(reviewed[name]):
        return
    with pytest.raises(SealError):
        verify_seal(KEY, bag, "cto")


def canonical_or_none(value):
    try:
        return canonical(value)
    except SealError:
        return None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(seal=json_values | st.dictionaries(st.sampled_from(["v", "key_id", "mac", "mode", "model"]), json_values))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_stands_for_a_seal_only_a_seal_error_is_raised(reviewed, seal):
    for bag in ({**reviewed, "cto_seal": seal}, {"cto_seal": seal}, {"cto_seal": seal, "cto_verdict": seal}):
        with pytest.raises(SealError):
            verify_seal(KEY, bag, "cto")
    if isinstance(seal, dict):
        with pytest.raises(SealError):
            verify_seal(KEY, {**reviewed, "cto_seal": {**reviewed["cto_seal"], **seal, "mac": "0" * 64}}, "cto")


def test_one_teachers_review_is_not_the_others(reviewed):
    moved = {name.replace("cto_", "coo_"): value for name, value in reviewed.items()}
    with pytest.raises(SealError, match="coo's seal"):
        verify_seal(KEY, moved, "coo")


def test_another_key_does_not_verify(reviewed):
    with pytest.raises(SealError, match="unknown key"):
        verify_seal(OLD, reviewed, "cto")
    with pytest.raises(SealError, match="does not verify"):
        verify_seal({key_id(KEY): OLD}, reviewed, "cto")


def test_old_keys_verify_while_they_are_kept(reviewed):
    verify_seal({key_id(OLD): OLD, key_id(KEY): KEY}, reviewed, "cto")
    with pytest.raises(SealError, match="unknown key"):
        verify_seal({key_id(OLD): OLD}, reviewed, "cto")


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": ""},
        {"verdict": "pass"},
        {"teacher": "dean"},
        {"mode": "later"},
        {"evidence_sha256": ""},
        {"output_sha256": "A" * 64},
        {"score": float("nan")},
        {"findings": [{1, 2}]},
        {"key": b"short"},
    ],
)
def test_what_can_not_be_verified_is_not_sealed(change):
    review = {
        "key": KEY, "bead": "b", "head_sha": "a" * 40, "teacher": "cto", "verdict": "PASS", "score": 90, "confidence": 1,
        "findings": [], "ac_met": [], "summary": "", "lens": "", "evidence_sha256": "e" * 64,
        "output_sha256": output_digest(""), "mode": "async", "reviewed_at": "2026-01-01T00:00:00Z", "model": "m",
    }  # fmt: skip
    make_seal(review.pop("key"), **review)
    changed = {"key": KEY, **review, **change}
    with pytest.raises(SealError):
        make_seal(changed.pop("key"), **changed)


def test_any_text_has_a_digest():
    assert output_digest("x") == hashlib.sha256(b"x").hexdigest()
    assert output_digest("\ud800") != output_digest("?")
