"""classify_issue over real public issues, and its order: labels over title over body (R-62)."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.staff import classify_issue

ISSUES = yaml.safe_load((Path(__file__).parent / "issues.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("issue", ISSUES, ids=[issue["where"] for issue in ISSUES])
def test_a_real_issue_is_classified_r62(issue):
    found = classify_issue(issue["title"], issue.get("labels", []), issue.get("body", ""))
    assert (found.kind, found.state) == (issue["kind"], issue["state"]), found.because


def test_labels_count_more_than_the_title_and_the_title_more_than_the_body_r62():
    bug_body = "Steps to reproduce: run it. Traceback (most recent call last): x"
    assert classify_issue("Add an option", [], bug_body).kind == "enhancement"
    assert classify_issue("Add an option", ["bug"], bug_body).kind == "bug"
    assert classify_issue("It crashes", ["enhancement"], bug_body).kind == "enhancement"
    assert classify_issue("The parser", [], bug_body).kind == "bug"
    assert classify_issue("CVE-2020-1 in the parser", ["ready-for-agent"], "").state == "ready-for-agent"
    assert classify_issue("It crashes", ["needs-triage"], bug_body).state == "needs-triage"


@pytest.mark.parametrize("state", ["ready-for-agent", "needs-info", "needs-triage", "ready-for-human"])
def test_a_label_that_names_a_state_gives_it(state):
    assert classify_issue("x", [state], "").state == state


def test_labels_that_say_both_leave_it_to_the_title():
    assert classify_issue("It crashes", ["bug", "enhancement"], "").kind == "bug"
    assert classify_issue("Add a way", ["bug", "enhancement"], "").kind == "enhancement"


def test_a_filled_in_template_says_only_what_was_filled_in():
    template = "<!-- describe -->\n### Description\n\n_No response_\n\n- [x] I searched\n- [ ] I read the docs\n"
    assert classify_issue("Parser error in lists", [], template).state == "needs-info"


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=4), st.text(max_size=500))
def test_any_issue_gets_a_classification_and_the_same_one_twice(title, labels, body):
    found = classify_issue(title, labels, body)
    assert found.kind in {"bug", "enhancement"}
    assert found == classify_issue(title, labels, body)


def test_a_very_long_issue_is_bounded():
    assert classify_issue("a " * 100_000, [], "```" * 400_000).kind == "enhancement"
