"""R-7, R-90: a task becomes a request, a bead's end becomes the task's, whoever died in between."""

import time

import pytest

from orchestrator.errors import BlockedError, UsageError
from orchestrator.home import home_at
from orchestrator.principal import desk
from orchestrator.principal.director import director_of
from orchestrator.principal.dispatch import Dispatcher, Job, settle_end
from orchestrator.principal.lease import Lease
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.request import SpawnRequest
from orchestrator.rails.tasks import NewTask, Status, open_tasks
from orchestrator.sandbox.outcome import Outcome
from orchestrator.settings import load_settings


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


@pytest.fixture
def ledger(home):
    with Ledger(home.ledger) as opened:
        yield opened


@pytest.fixture
def store(home):
    with open_tasks(home, load_settings(tracker="sqlite")) as opened:
        yield opened


def claimed(home, store, **more):
    made = store.create(NewTask(**{"text": "Fix it", "repo": "/r", "id": "task-1", **more}))
    return store.claim(made.id, desk.owner_of(home))


def ended(ledger, bead, outcome, task="task-1", **more):
    request = SpawnRequest(repo="/r", task="x", bead=bead, task_id=task)
    ledger.open_bead(bead, repo="/r", base_sha="b", data={"request": request.to_json()})
    ledger.update_bead(bead, status="ended", outcome=outcome, data={"reason": "because"}, **more)
    return ledger.bead(bead)


def test_a_task_becomes_a_request_under_its_own_id(home, ledger, store):
    task = claimed(home, store, labels=("docs",), difficulty="easy")
    request = desk.request_of(task, ledger, director_of(home, ledger), desk.Defaults(review="sync", agent="light"))
    assert (request.bead, request.task_id, request.task) == ("task-1", "task-1", "Fix it")
    assert (request.role, request.domain, request.difficulty) == ("coder", "docs", "easy")
    assert (request.review, request.agent, request.profile) == ("sync", "light", "student-coder")
    assert "director: " in request.routed


@pytest.mark.parametrize(
    ("title", "text", "read"),
    [
        ("Fix the parser", "It drops the last line.", "Fix the parser\n\nIt drops the last line."),
        ("It drops", "It drops the last line.", "It drops the last line."),
        ("Fix", "Fix", "Fix"),
    ],
)
def test_the_student_reads_title_and_text(home, ledger, store, title, text, read):
    task = claimed(home, store, title=title, text=text)
    assert desk.request_of(task, ledger, director_of(home, ledger), desk.Defaults()).task == read


def test_a_task_that_comes_back_gets_a_bead_of_another_name(home, ledger, store):
    task = claimed(home, store)
    ended(ledger, "task-1", Outcome.LOST)
    director = director_of(home, ledger)
    assert desk.request_of(task, ledger, director, desk.Defaults()).bead == "task-1-r2"
    ended(ledger, "task-1-r2", Outcome.LOST)
    assert desk.request_of(task, ledger, director, desk.Defaults()).bead == "task-1-r3"


def test_a_long_id_stays_inside_the_grammar(home, ledger, store):
    name = "a" * 63
    task = claimed(home, store, id=name)
    ended(ledger, name, Outcome.LOST, task=name)
    bead = desk.request_of(task, ledger, director_of(home, ledger), desk.Defaults()).bead
    assert (len(bead), bead[-3:]) == (63, "-r2")


def test_what_can_not_be_started_says_why(home, ledger, store):
    task = claimed(home, store, repo="")
    with pytest.raises(UsageError, match="names no repository"):
        desk.request_of(task, ledger, director_of(home, ledger), desk.Defaults())
    hard = claimed(home, store, id="task-2", labels=("blocker",))
    with pytest.raises(BlockedError, match="Nobody is eligible"):
        desk.request_of(hard, ledger, director_of(home, ledger), desk.Defaults())


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("accepted", Status.CLOSED),
        ("rejected", Status.CLOSED),
        ("task_failed", Status.CLOSED),
        ("timed_out", Status.CLOSED),
        ("out_of_memory", Status.CLOSED),
        ("budget_exhausted", Status.CLOSED),
        ("disk_exceeded", Status.CLOSED),
        ("not_reviewed", Status.BLOCKED),
        ("blocked", Status.BLOCKED),
        ("cancelled", Status.BLOCKED),
        ("sandbox_unavailable", Status.OPEN),
        ("lost", Status.OPEN),
        ("gateway_denied", Status.OPEN),
    ],
)
def test_each_end_of_a_bead_is_an_end_of_its_task(home, ledger, store, outcome, status):
    claimed(home, store)
    desk.settle_task(store, ledger, ended(ledger, "task-1", Outcome(outcome)))
    task = store.show("task-1")
    assert task.status is status
    assert task.reason.startswith(f"{outcome}: because")


def test_every_outcome_has_its_line_above():
    marks = test_each_end_of_a_bead_is_an_end_of_its_task.pytestmark[0].args[1]
    assert {name for name, _ in marks} == set(Outcome)


def test_the_sandbox_may_fail_a_task_three_times(home, ledger, store):
    claimed(home, store)
    for number in (1, 2):
        desk.settle_task(store, ledger, ended(ledger, f"b{number}", Outcome.LOST))
        assert store.show("task-1").status is Status.OPEN
    desk.settle_task(store, ledger, ended(ledger, "b3", Outcome.LOST))
    assert store.show("task-1").status is Status.BLOCKED


def test_a_bead_without_a_task_settles_none(ledger, store):
    assert desk.settle_task(store, ledger, ended(ledger, "b", Outcome.ACCEPTED, task="")) is None


def test_a_claimed_task_whose_driver_died_is_settled_by_the_next_round(home, ledger, store):
    claimed(home, store)
    ended(ledger, "task-1", Outcome.ACCEPTED)
    other = store.create(NewTask(text="x", repo="/r", id="task-2"))
    store.claim(other.id, "somebody-else")
    assert [(s.task, s.status) for s in desk.reconcile(home, store, ledger)] == [("task-1", "closed")]
    assert desk.reconcile(home, store, ledger) == []
    assert store.show("task-2").status is Status.CLAIMED


def test_a_task_that_nobody_started_is_open_again_but_not_while_somebody_starts_it(home, ledger, store, monkeypatch):
    claimed(home, store)
    assert desk.reconcile(home, store, ledger) == []  # it was claimed just now
    later = time.time() + desk.ABANDONED + 10
    monkeypatch.setattr(desk.time, "time", lambda: later)
    lease = Lease.take(desk.task_lock(home, "task-1"))
    assert desk.reconcile(home, store, ledger) == []
    lease.release()
    assert [(s.task, s.status) for s in desk.reconcile(home, store, ledger)] == [("task-1", "open")]


def test_a_task_that_is_claimed_again_is_not_settled_by_its_earlier_bead(home, ledger, store):
    claimed(home, store)
    desk.settle_task(store, ledger, ended(ledger, "task-1", Outcome.LOST))
    assert store.show("task-1").status is Status.OPEN
    store.claim("task-1", desk.owner_of(home))  # whoever took it is about to open task-1-r2
    assert desk.reconcile(home, store, ledger) == []
    assert store.show("task-1").status is Status.CLAIMED
    ended(ledger, "task-1-r2", Outcome.ACCEPTED)
    assert [s.status for s in desk.reconcile(home, store, ledger)] == ["closed"]


def test_a_task_that_was_set_aside_is_settled_when_its_bead_was_reviewed_after_all(home, ledger, store):
    claimed(home, store)
    desk.settle_task(store, ledger, ended(ledger, "task-1", Outcome.NOT_REVIEWED))
    assert desk.reconcile(home, store, ledger) == []
    ledger.update_bead("task-1", outcome="accepted", data={"settled": None})
    assert [s.status for s in desk.reconcile(home, store, ledger)] == ["closed"]


def test_two_runs_of_one_home_do_not_share_a_task(home, ledger, store):
    runs = [Dispatcher(home, ledger, store, director_of(home, ledger), most=1, defaults=desk.Defaults()) for _ in "ab"]
    store.create(NewTask(text="x", repo="/r", id="task-1"))
    taken = [store.claim("task-1", run._owner) for run in runs]
    assert [task is not None for task in taken] == [True, False]
    assert desk.is_owned(home, store.show("task-1"))


def test_a_running_bead_is_left_alone(home, ledger, store):
    claimed(home, store)
    ledger.open_bead(
        "task-1",
        repo="/r",
        base_sha="b",
        data={"request": SpawnRequest(repo="/r", task="x", task_id="task-1").to_json()},
    )
    assert desk.reconcile(home, store, ledger) == []


@pytest.mark.parametrize(
    ("error", "status"),
    [(UsageError("no such folder"), "blocked"), (BlockedError("nobody"), "blocked"), (None, "claimed")],
)
def test_the_driver_of_a_refused_bead_sets_its_task_aside(home, ledger, store, error, status, monkeypatch):
    claimed(home, store)
    monkeypatch.setenv("SCHOOL_HOME", str(home.root))
    settle_end(home, SpawnRequest(repo="/r", task="x", bead="task-1", task_id="task-1"), error)
    assert store.show("task-1").status == status


def test_tasks_that_are_refused_are_shown_and_do_not_stop_the_others(home, ledger, store):
    for number in range(3):
        store.create(NewTask(text="x", id=f"task-{number}"))  # without a repository
    dispatcher = Dispatcher(home, ledger, store, director_of(home, ledger), most=2, defaults=desk.Defaults())
    shown = []
    dispatcher.run(rounds=None, show=lambda jobs: shown.append(len(jobs)))
    assert [job.outcome for job in dispatcher.jobs] == ["refused"] * 3
    assert {task.status for task in store.list()} == {Status.BLOCKED}
    assert all("repository" in task.reason for task in store.list())


def test_a_task_that_came_back_is_not_taken_again_by_the_same_run(home, ledger, store):
    dispatcher = Dispatcher(home, ledger, store, director_of(home, ledger), most=1, defaults=desk.Defaults())
    store.create(NewTask(text="x", id="task-1"))
    assert dispatcher.start_one()
    store.reopen("task-1")
    assert not dispatcher.start_one()
    store.create(NewTask(text="x", id="task-2"))
    assert dispatcher.start_one()


def test_a_job_takes_its_step_from_the_beads_log(home):
    from orchestrator.principal.journal import log_path

    job = Job(SpawnRequest(repo="/r", task="x", bead="task-1"), "x")
    job.look(home)
    assert job.step == "starting"
    path = log_path(home, "task-1")
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"kind":"step","name":"run","state":"started"}\n{"kind":"step","name":"verify.container"}\nbroken\n{"kind"'
    )
    job.look(home)
    assert job.step == "run"
    with path.open("a") as file:
        file.write(':"step","name":"review"}\n')
    job.look(home)
    assert job.step == "review"
