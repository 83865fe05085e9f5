"""Both trackers through one set of tests, and what is special to each (R-90)."""

import json
import os
import shutil
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.bookbag import is_bead
from orchestrator.errors import ConfigError, InvalidBeadError, TaskNotFoundError, TrackerError, UsageError
from orchestrator.home import home_at
from orchestrator.rails.tasks import NewTask, Status, Task, bead_of, open_tasks
from orchestrator.rails.tasks import beads as beads_module
from orchestrator.rails.tasks.beads import BdTasks
from orchestrator.rails.tasks.sqlite import SqliteTasks
from orchestrator.settings import load_settings

MODES = ["envelope", "items", "bare", "show-list", "stdout-errors"]


@pytest.fixture
def bd(tmp_path, monkeypatch):
    """The folder of a stand-in bd, which is on PATH."""
    folder = tmp_path / "bd"
    (folder / ".beads").mkdir(parents=True)
    program = tmp_path / "bin" / "bd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).parent / "fake_bd.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_BD", str(folder))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return folder


def open_bd(folder) -> BdTasks:
    return BdTasks(folder, lock=folder / "lock", program=Path(shutil.which("bd")))


@pytest.fixture(params=["sqlite", *MODES])
def store(request, tmp_path):
    """Each tracker; bd in each way of answering."""
    if request.param == "sqlite":
        with SqliteTasks(tmp_path / "school" / "tasks.db") as made:
            yield made
        return
    folder = request.getfixturevalue("bd")
    (folder / "mode").write_text(request.param)
    yield open_bd(folder)


def test_a_task_goes_from_open_to_closed_with_the_verdict_as_reason_r90(store):
    made = store.create(NewTask("Fix it.\nAll of it.", priority=1, role="coder", difficulty="hard", labels=("ui",)))
    assert (made.title, made.text, made.status) == ("Fix it.", "Fix it.\nAll of it.", Status.OPEN)
    assert (made.priority, made.role, made.difficulty, made.labels) == (1, "coder", "hard", ("ui",))
    assert [task.id for task in store.ready()] == [made.id]
    assert store.claim(made.id, "one").owner == "one"
    assert store.ready() == []
    assert [task.status for task in store.list()] == [Status.CLAIMED]
    closed = store.close(made.id, "accepted: both judges passed it")
    assert (closed.status, closed.reason) == (Status.CLOSED, "accepted: both judges passed it")
    assert store.close(made.id, "another").reason == "accepted: both judges passed it"
    assert store.list() == []
    assert [task.id for task in store.list(closed=True)] == [made.id]


def test_the_id_that_is_asked_for_is_the_tasks_and_the_beads_r6(store):
    made = store.create(NewTask("x", id="docs-12"))
    assert (made.id, bead_of(made)) == ("docs-12", "docs-12")
    with pytest.raises((UsageError, TrackerError)):
        store.create(NewTask("y", id="docs-12"))
    for bad in ("../x", "-x", "UP", "a..b", ""):
        with pytest.raises(InvalidBeadError):
            store.create(NewTask("y", id=bad))


def test_a_claimed_task_is_nobody_elses(store):
    made = store.create(NewTask("x"))
    assert store.claim(made.id, "one") is not None
    assert store.claim(made.id, "two") is None
    assert store.claim(made.id, "one").owner == "one"  # a repeat after a crash
    store.close(made.id, "done")
    assert store.claim(made.id, "one") is None


def test_claim_next_takes_the_first_by_priority_and_then_nothing(store):
    last = store.create(NewTask("later", priority=3))
    first = store.create(NewTask("now", priority=0))
    assert [store.claim_next("me").id, store.claim_next("me").id] == [first.id, last.id]
    assert store.claim_next("me") is None


def test_a_blocked_task_says_why_and_comes_back(store):
    made = store.create(NewTask("x"))
    store.claim(made.id, "one")
    blocked = store.block(made.id, "nobody is eligible")
    assert (blocked.status, blocked.reason) == (Status.BLOCKED, "nobody is eligible")
    assert store.ready() == []
    again = store.reopen(made.id)
    assert (again.status, again.owner, again.reason) == (Status.OPEN, "", "")
    assert store.claim(made.id, "two").owner == "two"


@pytest.mark.parametrize("act", ["show", "claim", "block", "reopen", "close"])
@pytest.mark.parametrize("task_id", ["none-1", "--all"])
def test_an_unknown_task_is_said_to_be_unknown(store, act, task_id):
    more = () if act == "show" else ("x",)
    with pytest.raises(TaskNotFoundError):
        getattr(store, act)(task_id, *more)


@pytest.mark.parametrize("changes", [{"text": " "}, {"priority": 5}, {"priority": -1}])
def test_what_cannot_be_created_is_refused(store, changes):
    with pytest.raises(UsageError):
        store.create(NewTask(**{"text": "x", **changes}))


@pytest.mark.parametrize(("given", "bead"), [("BD-12.3", "bd-12.3"), ("a/b c", "a-b-c"), ("x" * 80, "x" * 63)])
def test_a_trackers_own_id_is_slugged_where_the_grammar_has_no_place_for_it_r6(given, bead):
    assert bead_of(Task(given, "t", "t", Status.OPEN)) == bead


# -- the embedded one ---------------------------------------------------------------------------------------------


def test_two_writers_never_claim_the_same_task(tmp_path):
    path = tmp_path / "tasks.db"
    with SqliteTasks(path) as store:
        for number in range(40):
            store.create(NewTask(f"t{number}"))
    claims: dict[str, list[str]] = {"one": [], "two": []}

    def work(owner):
        with SqliteTasks(path) as own:  # a connection of its own, as another process would have
            while task := own.claim_next(owner):
                claims[owner].append(task.id)

    threads = [threading.Thread(target=work, args=(owner,)) for owner in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    taken = claims["one"] + claims["two"]
    assert len(taken) == len(set(taken)) == 40


def test_a_minted_id_is_a_bead_id_r6(tmp_path):
    with SqliteTasks(tmp_path / "tasks.db") as store:
        made = store.create(NewTask("x", role="coder", domain="Web UI"))
    assert made.id.startswith("coder-web-ui-")
    assert is_bead(made.id)


def test_tasks_outlive_the_process_and_the_file_is_private(tmp_path):
    path = tmp_path / "tasks.db"
    with SqliteTasks(path) as store:
        made = store.create(NewTask("x", repo="/r"))
    with SqliteTasks(path) as store:
        assert store.show(made.id) == made
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_database_or_of_a_newer_version_is_a_clear_error(tmp_path):
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"x" * 5000)
    with pytest.raises(TrackerError, match="can't be opened"):
        SqliteTasks(bad)
    newer = tmp_path / "newer.db"
    db = sqlite3.connect(newer)
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(TrackerError, match="version 99"):
        SqliteTasks(newer)


# -- bd -----------------------------------------------------------------------------------------------------------


def calls(folder):
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def test_bd_runs_in_its_folder_with_json_the_envelope_and_the_owner_as_actor(bd):
    store = open_bd(bd)
    made = store.create(NewTask("secret plan", title="t"))
    store.claim(made.id, "school-1")
    create, update = calls(bd)[:2]
    assert create["cwd"] == str(bd)
    assert create["envelope"] == "1"
    assert create["argv"][-1] == "--json"
    assert "secret plan" not in " ".join(create["argv"])  # the text goes through stdin: a command line is public
    assert update["actor"] == "school-1"
    assert {"--claim", "--actor=school-1"} <= set(update["argv"])


def test_a_title_or_reason_is_never_read_as_an_option(bd):
    store = open_bd(bd)
    made = store.create(NewTask("x", title="--force"))
    assert store.show(made.id).title == "--force"
    assert store.close(made.id, "--all\nlines").reason == "--all lines"


def test_calls_of_several_threads_and_stores_never_overlap(bd):
    def work(number):
        open_bd(bd).create(NewTask(f"t{number}", id=f"t-{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(open_bd(bd).list()) == 4
    assert not (bd / "overlapped").exists()


@pytest.mark.parametrize(
    ("mode", "says"), [("garbage", "did not answer with JSON"), ("crash", "panic: runtime error"), ("slow", "within")]
)
def test_a_bd_that_fails_is_a_clear_error(bd, monkeypatch, mode, says):
    monkeypatch.setattr(beads_module, "TIMEOUT", 1.0 if mode == "slow" else 60.0)
    (bd / "mode").write_text(mode)
    with pytest.raises(TrackerError, match=says):
        open_bd(bd).ready()


def test_a_status_that_is_not_known_is_never_claimable(bd):
    store = open_bd(bd)
    made = store.create(NewTask("x"))
    state = json.loads((bd / "state.json").read_text())
    state[made.id]["status"] = "someday"
    (bd / "state.json").write_text(json.dumps(state))
    assert store.show(made.id).status is Status.BLOCKED
    assert store.claim(made.id, "me") is None


def test_a_task_of_another_repository_is_refused(bd, tmp_path):
    with pytest.raises(UsageError, match="not of"):
        open_bd(bd).create(NewTask("x", repo=str(tmp_path)))
    assert open_bd(bd).create(NewTask("x", repo=str(bd))).repo == str(bd)


def choose(tmp_path, **settings):
    home = home_at(tmp_path / "home").ensure()
    with open_tasks(home, load_settings(**settings)) as store:
        return store.name


def test_which_tracker_r90(bd, tmp_path, monkeypatch):
    assert choose(tmp_path) == "sqlite"  # bd on PATH says nothing of where the tasks are
    assert choose(tmp_path, beads_folder=bd) == "bd"
    assert choose(tmp_path, beads_folder=bd, tracker="sqlite") == "sqlite"
    assert choose(tmp_path, beads_folder=tmp_path) == "sqlite"
    with pytest.raises(ConfigError, match="no folder"):
        choose(tmp_path, beads_folder=tmp_path, tracker="bd")
    monkeypatch.setenv("PATH", "/nowhere")
    assert choose(tmp_path, beads_folder=bd) == "sqlite"
    with pytest.raises(ConfigError, match="no bd on PATH"):
        choose(tmp_path, beads_folder=bd, tracker="bd")


@pytest.mark.optin
@pytest.mark.skipif(shutil.which("bd") is None, reason="there is no bd on PATH")
def test_a_real_bd_keeps_the_same_promises(tmp_path):
    import subprocess

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["bd", "init", "--quiet"], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    store = open_bd(tmp_path)
    made = store.create(NewTask("Fix it.", priority=1, role="coder"))
    assert (made.status, made.role) == (Status.OPEN, "coder")
    assert store.claim(made.id, "one").owner == "one"
    assert store.claim(made.id, "two") is None
    assert store.block(made.id, "waits").reason == "waits"
    assert store.reopen(made.id).status is Status.OPEN
    assert store.claim_next("two").id == made.id
    assert store.close(made.id, "accepted").reason == "accepted"
    with pytest.raises(TaskNotFoundError):
        store.show("none-1")
