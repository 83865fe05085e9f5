"""`school teacher`: what a teacher looks like from outside (R-32 to R-37)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from orchestrator.errors import UsageError
from orchestrator.home import home_at
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.report import Report
from orchestrator.principal.teachers import agreement, teacher_report
from orchestrator.teacher import health, sleep
from orchestrator.teacher.history import History


def reported(cto, coo, scores=(90, 80)):
    return Report(
        "b", verdicts={"cto": cto, "coo": coo}, scores=dict(zip(("cto", "coo"), scores, strict=True))
    ).to_json()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], {"beads": 0, "agreed": 0, "share": None, "kappa": None, "stricter": 0, "milder": 0}),
        (["PP", "PP"], {"beads": 2, "agreed": 2, "share": 1.0, "kappa": None, "stricter": 0, "milder": 0}),
        (["PP", "FF"], {"beads": 2, "agreed": 2, "share": 1.0, "kappa": 1.0, "stricter": 0, "milder": 0}),
        (["PF", "FP"], {"beads": 2, "agreed": 0, "share": 0.0, "kappa": -1.0, "stricter": 1, "milder": 1}),
        (["PP", "FF", "FP", "PF"], {"beads": 4, "agreed": 2, "share": 0.5, "kappa": 0.0, "stricter": 1, "milder": 1}),
        (["P-", "-F"], {"beads": 0, "agreed": 0, "share": None, "kappa": None, "stricter": 0, "milder": 0}),
    ],
)
def test_agreement_over_beads_with_both_verdicts(pairs, expected):
    names = {"P": "PASS", "F": "FAIL", "-": ""}
    reports = [reported(names[pair[0]], names[pair[1]]) for pair in pairs]
    found = agreement(reports, "cto")
    assert {name: found[name] for name in expected} == expected
    assert found["score_gap"] == (10 if pairs else None)


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


def test_a_teacher_that_was_never_up_has_nothing_to_show(home):
    found = teacher_report(home, "cto")
    assert found["problem"] == "it has never been up"
    assert (found["session"], found["history"], found["sessions"], found["log"]) == (None, [], [], [])
    with pytest.raises(UsageError):
        teacher_report(home, "cfo")


def test_its_state_history_drift_and_agreement_are_shown(home):
    folder = home.sessions / "cto"
    state = sleep.wake(folder, "teacher-cto")
    history = History(folder)
    for number in range(3):
        history.add(
            f"b-{number}", verdict="PASS", score=90, issue_classes=["race"], second_look=number == 0, repo="/r\x1b[2J"
        )
    sleep.sleep(
        folder, state, history.entries(), ["b-9"], started=0.0, keep=10, learned="race: in 3 beads, 0 of them failed"
    )
    health.beat(folder, {"teacher": "cto", "running": ["b-9"], "reviews": 3})
    with Ledger(home.ledger) as ledger:
        ledger.open_bead("b-0", repo="/r", base_sha="a", data={"report": reported("PASS", "FAIL")})
    found = teacher_report(home, "cto")
    assert found["problem"] == ""
    assert found["session"]["task_queue"] == ["b-9"]
    assert found["drift"]["window"] == 3
    assert (found["drift"]["second_looks"], found["drift"]["found_at_second"]) == (1, 1)
    assert found["agreement"]["milder"] == 1
    assert len(found["history"]) == 3
    assert len(found["sessions"]) == 1
    assert [entry["event"] for entry in found["log"]] == ["wake", "sleep"]
    assert teacher_report(home, "coo")["session"] is None
    env = {**os.environ, "SCHOOL_HOME": str(home.root), "NO_COLOR": "1"}
    argv = [sys.executable, "-m", "orchestrator.cli.main", "teacher", "cto"]
    shown = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    for part in ("teacher-cto  healthy", "race: in 3 beads", "passed 3 of the last 3", "agreement  0 of 1", "b-2"):
        assert part in shown
    assert "\x1b" not in shown
    assert (
        json.loads(subprocess.run([*argv, "--json"], env=env, capture_output=True, check=True).stdout)["teacher"]
        == "cto"
    )


def test_a_corrupt_session_and_log_are_said_and_nothing_breaks(home):
    folder = home.sessions / "cto"
    folder.mkdir(parents=True)
    (folder / "session.json").write_bytes(b"{")
    (folder / sleep.LOG_FILE).write_bytes(b"---\n\xff: [\n")
    (folder / "history.jsonl").write_bytes(b"\xff\n{}\n")
    found = teacher_report(home, "cto")
    assert "can't be read" in found["session_problem"]
    assert (found["history"], found["log"]) == ([], [])
