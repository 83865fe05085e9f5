"""The four plugins that ship (R-63)."""

from __future__ import annotations

import json

import pytest

from orchestrator.staff import load_plugins, run_plugin

HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture
def run(school):
    plugins = load_plugins("")

    def go(name, **more):
        return run_plugin(plugins[name][0], school.records, school.ctx, granted=plugins[name][1], **more)

    return go


@pytest.mark.parametrize("name", ["janitor", "session_manager", "score_auditor", "adversarial_reviewer"])
def test_on_a_new_home_each_is_well_and_has_nothing_to_say(run, name):
    done = run(name)
    assert (done.status, done.findings, done.effects, done.proposals) == ("ok", [], [], [])


def test_the_janitor_removes_leftovers_and_flags_of_ended_beads_and_nothing_else(school, run):
    home = school.home
    school.bead("ended-1")
    school.bead("ended-2")
    school.bead("runs-1", ended=False)
    school.bookbag("ended-2")
    school.bookbag("stranger-1")
    gone = [
        school.file(home.bookbags, ".ended-1.json.ab.tmp", age=2 * HOUR),
        school.file(home.locks, ".x.tmp", age=2 * HOUR),
        school.file(home.signals, "ended-1.ready", age=2 * HOUR),
    ]
    kept = [
        school.file(home.bookbags, ".young.json.ab.tmp"),
        school.file(home.signals, "ended-2.ready", age=2 * HOUR),  # its bookbag is there: a teacher may still come
        school.file(home.signals, "runs-1.ready", age=2 * HOUR),
        school.file(home.signals, "nobody-1.ready", age=2 * HOUR),
        school.file(home.sessions / "cto", "session.json", age=90 * DAY),
    ]
    done = run("janitor")
    assert done.findings == ["the bookbag stranger-1 belongs to no bead of the ledger"]
    assert [path.exists() for path in gone] == [False] * 3
    assert [path.exists() for path in kept] == [True] * 5
    assert run("janitor").effects == []


def beat(**more):
    return json.dumps({"at": 0, **more}).encode()


def test_the_session_manager_says_which_teacher_is_gone_drifts_or_started_afresh(school, run):
    cto, coo = (school.home.sessions / name for name in ("cto", "coo"))
    school.file(cto, "heartbeat.json", content=beat(drifting=True))
    school.file(cto, "session.json.corrupt", age=2 * DAY)
    school.file(coo, "heartbeat.json", age=600.0, content=beat())
    done = run("session_manager")
    assert done.findings == [
        "teacher-cto drifts: it passes nearly everything",
        "teacher-cto had to start afresh 2 days ago: session.json.corrupt",
        "teacher-coo was last alive 10 min ago",
    ]
    (coo / "heartbeat.json").unlink()
    school.file(coo, "session.json")
    assert "teacher-coo has a session and no heartbeat" in run("session_manager").findings


def test_the_session_manager_removes_old_corrupt_sessions_and_what_a_dead_teacher_did_not_prune_r35(school, run):
    cto, coo = (school.home.sessions / name for name in ("cto", "coo"))
    old = school.file(cto, "session.json.corrupt", age=100 * DAY)
    school.file(cto, "heartbeat.json", content=b"not json")
    for number in range(13):
        school.file(cto / "consolidated", f"2026{number:02}.yaml")
        school.file(coo / "consolidated", f"2026{number:02}.yaml")
    run("session_manager")
    assert not old.exists()
    assert len(list((cto / "consolidated").iterdir())) == 13  # alive: it prunes its own
    assert min(path.name for path in (coo / "consolidated").iterdir()) == "202603.yaml"


def test_the_score_auditor_is_content_with_what_the_principal_wrote(school, run):
    school.scored("coder", "b-1", "b-2", "b-3")
    assert run("score_auditor").findings == []


@pytest.mark.parametrize(
    ("off", "becomes", "proposed"), [(-4, "mended", False), (12, "kept", True), (-40, "kept", True)]
)
def test_a_score_that_its_changes_do_not_lead_to_is_mended_or_proposed_r63(school, run, off, becomes, proposed):
    school.scored("coder", "b-1")
    right = school.score("coder")
    school.set_score("coder", right + off)
    done = run("score_auditor")
    assert len(done.findings) == 1
    assert bool(done.proposals) is proposed
    if becomes == "mended":
        assert school.score("coder") == pytest.approx(right)
        assert run("score_auditor").findings == []
    else:
        assert school.score("coder") == right + off
        assert abs(done.proposals[0]["delta"]) <= 15


def test_changes_that_no_bead_can_make_are_found(school, run):
    school.scored("coder", "b-1")
    with school.ledger.transaction() as db:
        for bead, old, new in (("b-1", 62, 63), ("b-2", 10, 95)):
            db.execute(
                "INSERT INTO score_changes (at,profile,bead,old,new,cause) VALUES (0,'coder',?,?,?,'by hand')",
                (bead, old, new),
            )
    found = "\n".join(run("score_auditor", dry_run=True).findings)
    for part in ("b-1 was scored twice", "from 10 to 95 is no step", "it starts at 10, the one before ended at 63"):
        assert part in found


def test_the_adversarial_reviewer_names_work_that_the_judges_may_have_been_too_kind_to(school, run):
    passed = {"status": "passed", "command": "make test", "exit_code": 0, "log": "", "baseline": None}
    finding = [{"severity": "LOW"}]
    fine = {"verification": passed, "findings": finding, "files_changed": ["a.py"]}
    stat = {"files": 1, "additions": 5, "deletions": 1}
    school.bead("fine-1", **fine, diffstat=stat)
    school.bead("large-1", **{**fine, "findings": []}, diffstat={**stat, "additions": 900})
    school.bead("unchecked-1", findings=finding, files_changed=["a.py"], diffstat=stat)
    school.bead("apart-1", **fine, diffstat=stat, scores={"cto": 95, "coo": 55})
    school.bead("tests-1", **{**fine, "files_changed": ["tests/test_a.py"]}, diffstat={**stat, "deletions": 50})
    school.bead("hooks-1", **{**fine, "files_changed": [".github/workflows/x.yml"]}, diffstat=stat)
    school.bead("rejected-1", outcome="rejected", diffstat={**stat, "additions": 900})
    school.bead("decided-1", findings=[], diffstat={**stat, "additions": 900})
    school.ledger.update_bead("decided-1", human="approved")
    found = {line.partition(":")[0]: line for line in run("adversarial_reviewer").findings}
    assert set(found) == {"large-1", "unchecked-1", "apart-1", "tests-1", "hooks-1"}
    assert "not one finding" in found["large-1"]
    assert "40 points apart" in found["apart-1"]
