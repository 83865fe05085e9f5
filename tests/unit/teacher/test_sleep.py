from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import SessionCorruptedError
from orchestrator.teacher import sleep
from orchestrator.teacher.history import DRIFT_WINDOW, History, drift
from orchestrator.teacher.session import STATE_FILE, SleepState, load_state, save_state

REVIEWED = {
    "bead": "b-1",
    "verdict": "FAIL",
    "score": 76,
    "domain": "general",
    "repo": "/r",
    "issue_classes": ["race", "naming", "race"],
    "worst": "HIGH Two writers.",
}
FAILED = {"bead": "b-2", "reason": "no gate"}


def library_log(folder):
    return list(yaml.safe_load_all((folder / sleep.LOG_FILE).read_text()))


def test_the_first_boot_is_an_empty_state_and_is_logged_r32(tmp_path):
    state = sleep.wake(tmp_path / "new", "teacher-cto")
    assert (state.task_queue, state.scores_snapshot) == ([], {})
    assert [(entry["event"], entry["state"]) for entry in library_log(tmp_path / "new")] == [("wake", "empty")]


def test_a_sleep_consolidates_persists_and_logs_and_the_next_wake_goes_on_r32_r33_r34(tmp_path):
    state = sleep.wake(tmp_path, "teacher-cto")
    sleep.sleep(tmp_path, state, [REVIEWED, FAILED], ["b-2"], started=0.0, keep=10)
    artifact = yaml.safe_load((tmp_path / sleep.CONSOLIDATED / f"{state.session_id}.yaml").read_text())
    assert artifact["tasks_completed"] == ["b-1"]
    assert artifact["key_decisions"] == ["b-1: FAIL 76", "b-2: no review: no gate"]
    assert artifact["patterns_observed"] == ["naming x1", "race x1"]  # in how many beads
    assert artifact["failed_approaches"] == ["b-1: naming, race: HIGH Two writers."]
    assert artifact["domains_visited"] == ["general"]
    again = sleep.wake(tmp_path, "teacher-cto")
    assert (again.task_queue, again.scores_snapshot, again.building) == (["b-2"], {"b-1": 76}, "/r")
    assert again.session_id != state.session_id
    assert again.layer_0 == "teacher-cto: CORRECTNESS+SECURITY"
    assert [entry["event"] for entry in library_log(tmp_path)] == ["wake", "sleep", "wake"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"\xff", b'{"session_id": "x"}', b"[" * 100_000],
)
def test_a_corrupt_session_is_put_aside_and_the_teacher_starts_afresh_r32(tmp_path, content):
    (tmp_path / STATE_FILE).write_bytes(content)
    with pytest.raises(SessionCorruptedError):
        load_state(tmp_path, "teacher-cto")
    state = sleep.wake(tmp_path, "teacher-cto")
    assert state.scores_snapshot == {}
    assert library_log(tmp_path)[0]["state"] == "corrupt"
    assert (tmp_path / f"{STATE_FILE}.corrupt").read_bytes() == content
    assert load_state(tmp_path, "teacher-cto") is None


def test_one_teachers_session_is_not_the_others_r33(tmp_path):
    save_state(tmp_path, SleepState("s", "teacher-coo"))
    with pytest.raises(SessionCorruptedError, match="teacher-coo"):
        load_state(tmp_path, "teacher-cto")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from([*SleepState.__slots__, "other"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, JSON))
def test_any_session_file_is_loaded_or_called_corrupt(tmp_path, changes):
    whole = {"session_id": "s", "agent": "t", "building": "", "task_queue": [], "scores_snapshot": {}}
    whole |= {"layer_0": "", "layer_2_summary": "", "timestamp": ""}
    (tmp_path / STATE_FILE).write_text(json.dumps(whole | changes))
    try:
        assert isinstance(load_state(tmp_path, "t"), SleepState)
    except SessionCorruptedError:
        return


def test_only_the_newest_sessions_are_kept_r35(tmp_path):
    folder = tmp_path / sleep.CONSOLIDATED
    folder.mkdir()
    for day in range(10, 25):
        (folder / f"202601{day}T000000Z-abc.yaml").write_text("x")
    assert sleep.prune(tmp_path, 10) == 5
    assert sorted(path.name[:8] for path in folder.iterdir()) == [f"202601{day}" for day in range(15, 25)]
    assert sleep.prune(tmp_path, 10) == 0


def test_the_scores_that_are_kept_are_bounded_and_the_newest(tmp_path):
    state = sleep.wake(tmp_path, "teacher-cto")
    sleep.persist(tmp_path, state, [REVIEWED | {"bead": f"b-{n}", "score": n} for n in range(200)], [])
    assert list(state.scores_snapshot)[-1] == "b-199"
    assert len(state.scores_snapshot) == 50


def test_the_loop_persists_after_a_batch_and_logs_its_sleep(school, wait):
    bead = school.bead()
    school.start("cto")
    folder = school.root / "sessions" / "cto"
    wait((folder / STATE_FILE).exists)
    assert load_state(folder, "teacher-cto").scores_snapshot == {bead: 98}
    school.stop()
    assert [entry["event"] for entry in library_log(folder)] == ["wake", "sleep"]
    records = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [(record["bead"], record["verdict"], record["calls"]) for record in records] == [(bead, "PASS", 1)]


def test_a_lens_that_passes_nearly_everything_is_called_drifting_r37(tmp_path):
    history = History(tmp_path)
    for number in range(DRIFT_WINDOW):
        assert not history.drifting
        history.add(f"b-{number}", verdict="FAIL" if number in {3, 9} else "PASS")
    assert history.drifting
    history.add("b-x", verdict="FAIL")
    history.add("b-y", verdict="FAIL")
    assert not history.drifting


def test_the_window_of_drift_outlives_a_restart_r37(tmp_path):
    for number in range(DRIFT_WINDOW):
        History(tmp_path).add(f"b-{number}", verdict="PASS")  # each life sees one review
    assert History(tmp_path).drifting
    (tmp_path / "history.jsonl").write_text('{"bead": 1}\nnot json\n[' + "[" * 100_000 + '\n{"bead": "x"}\n')
    assert not History(tmp_path).drifting


def test_the_figures_of_drift_count_second_looks_and_what_they_found_r37():
    reviews = [
        {"bead": "b", "verdict": "PASS", "second_look": n < 4, "issue_classes": ["x"] * (n < 1)} for n in range(30)
    ]
    assert drift(reviews) == {
        "window": 20,
        "passed": 20,
        "share": 1.0,
        "drifting": True,
        "second_looks": 0,
        "found_at_second": 0,
    }
    figures = drift(reviews[:10])
    assert (figures["window"], figures["drifting"], figures["second_looks"], figures["found_at_second"]) == (
        10,
        False,
        4,
        1,
    )
    assert drift([])["share"] is None


def test_a_teacher_that_is_killed_loses_few_cycles(tmp_path):
    state = sleep.wake(tmp_path, "teacher-cto")
    sleep.settle(tmp_path, state, [REVIEWED], started=0.0, keep=10)
    assert [path.stem for path in (tmp_path / sleep.CONSOLIDATED).iterdir()] == [state.session_id]


def test_the_library_log_is_put_aside_when_it_is_full_and_keeps_whole_entries_r34(tmp_path, monkeypatch):
    monkeypatch.setattr(sleep, "LOG_ROTATE_AT", 400)
    for number in range(9):
        sleep.log(tmp_path, "wake", number=number)
    older = list(yaml.safe_load_all((tmp_path / f"{sleep.LOG_FILE}.1").read_text()))
    newer = library_log(tmp_path) if (tmp_path / sleep.LOG_FILE).exists() else []
    assert [entry["number"] for entry in older + newer][-len(older + newer) :] == list(range(9))[-len(older + newer) :]
    assert all(set(entry) == {"at", "event", "number"} for entry in older + newer)


def test_the_history_is_rotated(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.teacher.history.ROTATE_AT", 500)
    history = History(tmp_path)
    for number in range(30):
        history.add(f"b-{number}", verdict="PASS")
    assert {path.name for path in tmp_path.iterdir()} == {"history.jsonl", "history.jsonl.1"}
    assert len(history.entries()) == 30
