from __future__ import annotations

import threading
from pathlib import Path

import pytest

from orchestrator.bookbag import Dirs, new_bookbag, read_bookbag, write_bookbag
from orchestrator.bookbag.seal import verify_seal
from orchestrator.bookbag.validate import validate_bookbag
from orchestrator.errors import ConfigError, ModelCallError, ReviewError, SealError, TransitionError
from orchestrator.review import attempts
from orchestrator.review.claim import Claim, sweep_claims
from orchestrator.review.record import read_seal_key, record_review, record_sync
from orchestrator.review.reviewer import Reviewer
from orchestrator.review.sync import review_now

BEAD = "coder-general-0badcafe"
KEYS = {"cto": b"c" * 32, "coo": b"o" * 32}


@pytest.fixture
def dirs(tmp_path):
    return Dirs(tmp_path / "bookbag", tmp_path / "signals", tmp_path / "locks")


@pytest.fixture
def evidence(evidence_folder):
    evidence_folder.part("diff.patch", "diff --git a/src/a.py b/src/a.py\n+x = 2\n")
    return evidence_folder.write().read()


@pytest.fixture
def written(dirs, evidence):
    fields = {"head_sha": evidence.head_sha, "base_sha": evidence.base_sha, "output": "done", "difficulty": "medium"}
    return write_bookbag(BEAD, new_bookbag(BEAD, fields | {"from_elsewhere": {"kept": 1}}), dirs=dirs)


@pytest.fixture
def review(bag, evidence, make_answer, scripted):
    def make(teacher, *answers):
        given = answers or (make_answer("PASS", "LOW"),)
        return Reviewer(teacher, scripted(*given), "m").review(bag, evidence)

    return make


def test_each_review_is_sealed_and_moves_the_state_r11(dirs, written, review, make_answer):
    after = record_review(BEAD, "coo", review("coo"), KEYS["coo"], dirs=dirs)
    assert (after["state"], after["coo_verdict"], after["cto_verdict"]) == ("COO_REVIEWED", "PASS", "")
    other = make_answer("FAIL", "HIGH", "LOW")
    after = record_review(BEAD, "cto", review("cto", other), KEYS["cto"], dirs=dirs)
    assert (after["state"], after["cto_verdict"], after["cto_score"]) == ("REVIEWED", "FAIL", 85)
    for teacher, key in KEYS.items():
        verify_seal(key, after, teacher)
        assert after[f"{teacher}_seal"]["mode"] == "async"
    assert validate_bookbag(after) == []
    assert after["from_elsewhere"] == {"kept": 1}
    assert after["cto_ac_met"] == ["x is 2 (src/a.py:1)"]
    assert after["accepted"] is False


def test_findings_are_united_and_the_same_one_is_there_once(dirs, written, review, make_answer):
    record_review(BEAD, "coo", review("coo"), KEYS["coo"], dirs=dirs)
    after = record_review(BEAD, "cto", review("cto", make_answer("FAIL", "HIGH", "LOW")), KEYS["cto"], dirs=dirs)
    assert [finding["severity"] for finding in after["findings"]] == ["LOW", "HIGH"]


def test_one_teacher_never_changes_the_others_fields_r30(dirs, written, review):
    before = record_review(BEAD, "coo", review("coo"), KEYS["coo"], dirs=dirs)
    after = record_review(BEAD, "cto", review("cto"), KEYS["cto"], dirs=dirs)
    theirs = {name: value for name, value in before.items() if name.startswith("coo_")}
    assert {name: value for name, value in after.items() if name.startswith("coo_")} == theirs


def test_a_verdict_is_given_once_r31(dirs, written, review):
    record_review(BEAD, "cto", review("cto"), KEYS["cto"], dirs=dirs)
    with pytest.raises(ReviewError, match="already"):
        record_review(BEAD, "cto", review("cto"), KEYS["cto"], dirs=dirs)


@pytest.mark.parametrize("change", [{"head_sha": "c" * 40}, {"output": "other"}])
def test_a_bookbag_that_changed_since_the_evidence_takes_no_verdict_r44(dirs, written, review, change):
    made = review("cto")
    write_bookbag(BEAD, written | change, dirs=dirs)
    with pytest.raises(ReviewError):
        record_review(BEAD, "cto", made, KEYS["cto"], dirs=dirs)
    assert read_bookbag(BEAD, dirs=dirs)["cto_verdict"] == ""


def test_a_bead_that_is_gone_or_scored_takes_no_verdict(dirs, written, review):
    made = review("cto")
    write_bookbag(BEAD, written | {"state": "DISPOSED"}, dirs=dirs)
    with pytest.raises(TransitionError):
        record_review(BEAD, "cto", made, KEYS["cto"], dirs=dirs)
    Path(dirs.bookbags, f"{BEAD}.json").unlink()
    with pytest.raises(ReviewError, match="gone"):
        record_review(BEAD, "cto", made, KEYS["cto"], dirs=dirs)


def test_a_review_is_not_recorded_under_another_name(dirs, written, review):
    with pytest.raises(ReviewError):
        record_review(BEAD, "coo", review("cto"), KEYS["coo"], dirs=dirs)


def test_a_key_is_read_from_hex_and_anything_else_is_refused(tmp_path):
    path = tmp_path / "seal.key"
    path.write_text("ab" * 32 + "\n")
    assert read_seal_key(path) == b"\xab" * 32
    for content in ("", "zz", "abcd"):
        path.write_text(content)
        with pytest.raises(ConfigError):
            read_seal_key(path)
    with pytest.raises(ConfigError):
        read_seal_key(tmp_path / "none")


def test_attempts_are_counted_and_bounded_r37(dirs, written):
    for number in range(1, 4):
        note = attempts.pick_up(BEAD, "cto", dirs=dirs)
        assert note is not None
        bag = attempts.count_attempt(BEAD, "cto", f"reason {number}\x1b", note, dirs=dirs)
    assert [entry["reason"] for entry in bag["cto_attempts"]] == [f"reason {n}[U+001B]" for n in (1, 2, 3)]
    assert "reason 3" in bag["cto_parked"]
    assert bag["cto_verdict"] == ""
    assert attempts.pick_up(BEAD, "cto", dirs=dirs) is None
    assert attempts.pick_up(BEAD, "coo", dirs=dirs) is not None
    bag = attempts.unpark(BEAD, "cto", dirs=dirs)
    assert attempts.attempts_of(bag, "cto") == []
    assert attempts.pick_up(BEAD, "cto", dirs=dirs) is not None


def test_an_interrupted_pick_up_counts_without_delay_and_one_put_back_does_not_r36(dirs, written):
    note = attempts.pick_up(BEAD, "cto", dirs=dirs)
    attempts.put_back(BEAD, "cto", note, dirs=dirs)
    attempts.pick_up(BEAD, "cto", dirs=dirs)  # and its teacher is killed
    attempts.pick_up(BEAD, "cto", dirs=dirs)
    bag = read_bookbag(BEAD, dirs=dirs)
    assert [entry["reason"] for entry in bag["cto_attempts"]] == [attempts.INTERRUPTED]
    assert attempts.seconds_until_due(bag, "cto") == 0


def test_a_bead_that_kills_its_teacher_is_parked_in_the_end_r37(dirs, written):
    assert [attempts.pick_up(BEAD, "cto", dirs=dirs) is not None for _ in range(5)] == [True, True, True, False, False]
    assert attempts.is_parked(read_bookbag(BEAD, dirs=dirs), "cto")


def test_without_the_claim_a_living_teachers_pick_up_is_not_called_interrupted(dirs, written):
    attempts.pick_up(BEAD, "cto", dirs=dirs)
    attempts.pick_up(BEAD, "cto", alone=False, dirs=dirs)
    assert read_bookbag(BEAD, dirs=dirs)["cto_attempts"] == []


def test_the_wait_doubles_and_is_bounded_whatever_the_bookbag_says():
    def bag(count, at=None):
        return {"cto_attempts": [{"at": at or attempts.stamp(), "reason": "x"}] * count}

    assert attempts.seconds_until_due({}, "cto") == 0
    assert 4 < attempts.seconds_until_due(bag(1), "cto") <= 5
    assert 9 < attempts.seconds_until_due(bag(2), "cto") <= 10
    assert 29 < attempts.seconds_until_due(bag(5000), "cto") <= 30
    assert attempts.seconds_until_due(bag(1, "2000-01-01T00:00:00+00:00"), "cto") == 0
    assert attempts.seconds_until_due(bag(1, "2999-01-01T00:00:00+00:00"), "cto") == 0
    assert attempts.seconds_until_due(bag(1, "yesterday"), "cto") == 0
    assert attempts.seconds_until_due(bag(1, "2000-01-01T00:00:00"), "cto") == 0
    assert attempts.seconds_until_due({"cto_attempts": "x"}, "cto") == 0


def test_a_claim_is_one_holders_and_leaves_no_file(dirs, tmp_path):
    with Claim(BEAD, "cto", dirs=dirs) as first:
        assert first.try_take()
        with Claim(BEAD, "cto", dirs=dirs) as second, Claim(BEAD, "coo", dirs=dirs) as other:
            assert not second.try_take()
            assert other.try_take()
    with Claim(BEAD, "cto", dirs=dirs) as third:
        assert third.try_take()
    assert list((tmp_path / "locks").iterdir()) == []


def test_claims_of_killed_teachers_are_swept_and_held_ones_stay(dirs, tmp_path):
    (tmp_path / "locks").mkdir()
    for name in ("dead-1~cto.claim", "dead-2~coo.claim", "..~cto.claim", "dead-1.lock"):
        (tmp_path / "locks" / name).touch()
    with Claim("held-1", "cto", dirs=dirs) as held:
        held.try_take()
        assert sweep_claims("cto", dirs=dirs) == 1
        left = {path.name for path in (tmp_path / "locks").iterdir()}
    assert left == {"held-1~cto.claim", "dead-2~coo.claim", "..~cto.claim", "dead-1.lock"}


@pytest.fixture
def fallback(dirs, written, evidence_folder):
    def run(models, **more):
        reviewers = {teacher: Reviewer(teacher, model, "m") for teacher, model in models.items()}
        more.setdefault("sleep", lambda seconds: None)
        return review_now(BEAD, reviewers, dirs=dirs, evidence=evidence_folder.root, keys=KEYS, **more)

    return run


def test_the_fallback_fills_both_verdicts_in_one_write_marked_sync_r11_r39(fallback, make_answer, scripted):
    models = {"cto": scripted(make_answer("PASS", "LOW")), "coo": scripted(make_answer("FAIL", "HIGH"))}
    after = fallback(models)
    assert (after["state"], after["cto_verdict"], after["coo_verdict"]) == ("REVIEWED", "PASS", "FAIL")
    for teacher, key in KEYS.items():
        verify_seal(key, after, teacher)
        assert after[f"{teacher}_seal"]["mode"] == "sync"
        with pytest.raises(SealError):
            verify_seal(key, after | {f"{teacher}_score": 99}, teacher)


def test_the_fallback_leaves_a_verdict_that_a_teacher_gave_r39(fallback, dirs, review, make_answer, scripted):
    record_review(BEAD, "coo", review("coo"), KEYS["coo"], dirs=dirs)
    after = fallback({"cto": scripted(make_answer("PASS", "LOW")), "coo": scripted()})
    assert (after["state"], after["coo_seal"]["mode"], after["cto_seal"]["mode"]) == ("REVIEWED", "async", "sync")


def test_the_fallback_for_one_teacher_leaves_the_other_its_say_r14(fallback, review, make_answer, scripted, dirs):
    after = fallback({"cto": scripted(make_answer("PASS", "LOW"))}, teachers=("cto",))
    assert (after["state"], after["cto_seal"]["mode"], after["coo_verdict"]) == ("CTO_REVIEWED", "sync", "")
    after = record_review(BEAD, "coo", review("coo"), KEYS["coo"], dirs=dirs)
    assert (after["state"], after["coo_seal"]["mode"]) == ("REVIEWED", "async")


def test_a_verdict_given_while_the_fallback_was_asking_stands(dirs, written, review):
    made = [review("cto"), review("coo")]
    record_review(BEAD, "coo", review("coo"), KEYS["coo"], dirs=dirs)
    after = record_sync(BEAD, made, KEYS, dirs=dirs)
    assert (after["coo_seal"]["mode"], after["cto_seal"]["mode"]) == ("async", "sync")


def test_the_fallback_tries_again_and_then_fails_closed_r37(fallback, dirs, make_answer, scripted):
    pauses: list[float] = []
    models = {
        "cto": scripted(*[ModelCallError("busy")] * 3),
        "coo": scripted(ModelCallError("busy"), make_answer("PASS", "LOW")),
    }
    with pytest.raises(ReviewError, match="busy"):
        fallback(models, sleep=pauses.append)
    bag = read_bookbag(BEAD, dirs=dirs)
    assert (bag["state"], bag["cto_verdict"], bag["coo_verdict"]) == ("WRITTEN", "", "")
    assert (len(bag["cto_attempts"]), len(bag["coo_attempts"])) == (3, 1)
    assert bag["cto_parked"]
    assert bag["coo_picked_up_at"] == ""  # its review was good and was not recorded: no fault of its own
    assert sorted(pauses) == [5, 5, 10]


def test_ctrl_c_does_not_wait_for_the_model_and_counts_no_attempt(fallback, dirs, monkeypatch):
    asked, answer = threading.Event(), threading.Event()

    class Silent:
        def complete(self, model, messages, *, bead, deadline):
            asked.set()
            answer.wait(60)
            raise ModelCallError("too late")

    def interrupted(futures):
        assert asked.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.review.sync.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fallback({"cto": Silent()}, teachers=("cto",))
    answer.set()
    for thread in threading.enumerate():
        if thread.name == "review as cto":
            thread.join(60)
    bag = read_bookbag(BEAD, dirs=dirs)
    assert (bag["cto_attempts"], bag["cto_picked_up_at"]) == ([], "")


def test_the_fallback_of_a_parked_bead_costs_no_token(fallback, dirs, written, scripted):
    write_bookbag(BEAD, written | {"cto_parked": "given up"}, dirs=dirs)
    model = scripted()
    with pytest.raises(ReviewError, match="given up"):
        fallback({"cto": model}, teachers=("cto",))
    assert model.asked == []
