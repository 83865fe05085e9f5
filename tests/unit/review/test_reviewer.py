from __future__ import annotations

import pytest

from orchestrator.errors import ModelCallError, ReviewError
from orchestrator.review.model import Usage
from orchestrator.review.reviewer import Reviewer


@pytest.fixture
def evidence(evidence_folder):
    evidence_folder.part("diff.patch", "diff --git a/src/a.py b/src/a.py\n+x = 2\n")
    return evidence_folder.write().read()


def test_a_review_with_a_finding_takes_one_call_for_all_lenses_r31(bag, evidence, make_answer, scripted):
    model = scripted(make_answer("PASS", "MEDIUM"))
    review = Reviewer("cto", model, "auto/review").review(bag, evidence)
    assert (review.verdict, review.score, review.second_look) == ("PASS", 94, False)
    assert (review.lens, review.model, review.usage) == ("CORRECTNESS+SECURITY", "scripted", Usage(1, 100, 10))
    assert review.evidence_sha256 == evidence.digest
    assert len(model.asked) == 1


def test_the_other_verdict_is_not_in_what_a_teacher_reads_r30(bag, evidence, make_answer, scripted):
    model = scripted(make_answer("PASS", "LOW"))
    Reviewer("cto", model, "m").review(bag, evidence)
    assert "SECRET OF THE COO" not in "".join(message.content for message in model.asked[0])


def test_a_pass_without_a_finding_gets_a_second_look_r37(bag, evidence, make_answer, scripted):
    model = scripted(make_answer("PASS"), make_answer("PASS", confidence=0.5))
    review = Reviewer("coo", model, "m").review(bag, evidence)
    assert (review.verdict, review.score, review.second_look, review.confidence) == ("PASS", 100, True, 0.5)
    assert [messages[0].content.split("\n")[2] for messages in model.asked] == [
        "School-Look: first",
        "School-Look: second",
    ]


def test_what_the_second_look_finds_counts_r37(bag, evidence, make_answer, scripted):
    model = scripted(make_answer("PASS"), make_answer("PASS", "HIGH"))
    review = Reviewer("coo", model, "m").review(bag, evidence)
    assert (review.verdict, review.score) == ("FAIL", 88)


def test_a_failing_second_look_fails_closed_r37(bag, evidence, make_answer, scripted):
    model = scripted(make_answer("PASS"), ModelCallError("gone"))
    with pytest.raises(ReviewError, match="gone"):
        Reviewer("coo", model, "m").review(bag, evidence)


def test_an_unreadable_answer_is_repaired_once(bag, evidence, make_answer, scripted):
    model = scripted("looks good to me", make_answer("FAIL", "HIGH"))
    review = Reviewer("cto", model, "m").review(bag, evidence)
    assert review.verdict == "FAIL"
    assert review.usage.calls == 2
    assert [message.role for message in model.asked[1]] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("nonsense", ["PASS", "", "{}", '{"verdict": "PASS"}', "I can't help with that."])
def test_nonsense_after_the_repair_is_an_error_and_never_a_pass_r37(bag, evidence, scripted, nonsense):
    model = scripted(nonsense, nonsense)
    with pytest.raises(ReviewError, match="not a review"):
        Reviewer("cto", model, "m").review(bag, evidence)


@pytest.mark.parametrize("change", [{"head_sha": "c" * 40}, {"head_sha": ""}, {"bead": "other"}, {"output": None}])
def test_a_bookbag_that_is_not_the_evidences_is_refused_before_a_call_r44(bag, evidence, scripted, change):
    model = scripted()
    with pytest.raises(ReviewError):
        Reviewer("cto", model, "m").review(bag | change, evidence)
    assert model.asked == []


def test_an_unknown_difficulty_costs_no_token(bag, evidence_folder, scripted):
    model = scripted()
    with pytest.raises(ReviewError, match="impossible"):
        Reviewer("cto", model, "m").review(bag, evidence_folder.write(difficulty="impossible").read())
    assert model.asked == []


def test_a_change_that_nobody_saw_whole_does_not_pass_r44(bag, evidence_folder, make_answer, scripted):
    evidence_folder.part("diff.patch", "diff --git a/src/a.py b/src/a.py\n" + "+x = 2\n" * 2000)
    evidence = evidence_folder.write().read()
    review = Reviewer("cto", scripted(make_answer("PASS", "LOW")), "m", 2000).review(bag, evidence)
    assert review.verdict == "FAIL"
    assert review.findings[0].issue_class == "unreviewed_change"
    assert review.findings[0].section == "src/a.py"
    assert any("src/a.py" in entry for entry in review.cut)
    assert "Not seen whole" in review.summary


def test_a_report_that_is_the_work_and_was_not_read_whole_does_not_pass_r44(
    bag, evidence_folder, make_answer, scripted
):
    evidence = evidence_folder.write(files=[], role="searcher").read()
    long = bag | {"output": "claim\n" * 10_000}
    review = Reviewer("coo", scripted(make_answer("PASS", "LOW")), "m").review(long, evidence)
    assert (review.verdict, review.findings[0].section) == ("FAIL", "(the end of the report)")


def test_an_unknown_teacher_is_refused(scripted):
    with pytest.raises(ReviewError, match="ceo"):
        Reviewer("ceo", scripted(), "m")


def test_the_persona_comes_after_the_lines_that_a_rehearsal_matches(bag, evidence, make_answer, scripted):
    model = scripted(make_answer("PASS", "LOW"))
    Reviewer("cto", model, "m", persona="You are the CTO of a small firm.").review(bag, evidence)
    system = model.asked[0][0].content
    assert system.startswith("School-Role: teacher-cto\n")
    assert "You are the CTO of a small firm." in system
