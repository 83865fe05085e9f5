"""The janitor waits for leases, starts one worker a bead, and ends when nothing is left to guard (R-49)."""

import itertools
import sys
import threading
import time

import pytest

from orchestrator.home import Home
from orchestrator.principal import janitor as module
from orchestrator.principal.janitor import Janitor, lock_path, start_janitor
from orchestrator.principal.lease import Lease, bead_lease_path, held
from orchestrator.principal.ledger import Ledger

BEAD = "coder-general-00000001"


@pytest.fixture
def home(tmp_path):
    root = tmp_path / "home"
    return Home(root, root / "bookbag", root / "signals", root / "locks").ensure()


@pytest.fixture
def ledger(home):
    with Ledger(home.ledger) as opened:
        yield opened


@pytest.fixture
def workers(monkeypatch, ledger):
    """Workers that do not run: each call is noted, and ends at once with the code and the effect it is given."""
    started = []

    class Worker:
        effect, code = staticmethod(lambda _bead: None), 0

        def __init__(self, argv, **_options):
            assert argv[:3] == [sys.executable, "-m", "orchestrator.principal.resume"]
            started.append(argv[3])
            Worker.effect(argv[3])

        def poll(self):
            return Worker.code

    monkeypatch.setattr(module.subprocess, "Popen", Worker)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)  # no child of ours ends, so no signal wakes it
    Worker.started = started
    return Worker


def end(ledger):
    return lambda bead: ledger.update_bead(bead, status="ended", outcome="lost", cleanup="done")


def run(home, **fields):
    fields.setdefault("linger", 0.1)
    return Janitor(home.leases, home.ledger, lambda _text: None, **fields)


def test_with_nothing_to_guard_it_ends(home, ledger):
    assert run(home).run() is True
    assert not held(lock_path(home.leases))


def test_there_is_one_per_home(home, ledger):
    lease = Lease.take(lock_path(home.leases))
    assert run(home).run() is False
    assert start_janitor(home) is False
    lease.release()


def test_an_abandoned_bead_is_given_to_a_worker_once(home, ledger, workers):
    workers.effect = end(ledger)
    ledger.open_bead(BEAD, repo="/r", base_sha="", data={})
    assert run(home).run() is True
    assert workers.started == [BEAD]


def test_a_driven_bead_is_left_alone_until_its_driver_is_gone(home, ledger, workers):
    workers.effect = end(ledger)
    ledger.open_bead(BEAD, repo="/r", base_sha="", data={})
    lease = Lease.take(bead_lease_path(home.leases, BEAD))
    seen = []

    def release():
        time.sleep(0.5)
        seen.extend(workers.started)
        lease.release()

    thread = threading.Thread(target=release)
    thread.start()
    assert run(home).run() is True
    thread.join()
    assert seen == []
    assert workers.started == [BEAD]


def test_what_can_not_be_removed_is_tried_again_later_each_time_later(home, ledger, workers, monkeypatch):
    monkeypatch.setattr(module, "FIRST_RETRY", 0.05)
    times = []

    def fails(bead):
        times.append(time.monotonic())
        if len(times) == 4:
            end(ledger)(bead)

    workers.effect, workers.code = fails, 1
    ledger.open_bead(BEAD, repo="/r", base_sha="", data={})
    assert run(home).run() is True
    assert len(times) == 4
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap >= 0.05 * 2**number for number, gap in enumerate(gaps))


def test_a_bead_that_never_goes_is_given_up(home, ledger, workers, monkeypatch):
    monkeypatch.setattr(module, "FIRST_RETRY", 0.0)
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    workers.code = 1
    ledger.open_bead(BEAD, repo="/r", base_sha="", data={})
    assert run(home).run() is True
    assert len(workers.started) == 3


def test_lock_files_of_beads_that_are_done_go(home, ledger):
    stale = bead_lease_path(home.leases, BEAD)
    stale.touch()
    assert run(home).run() is True
    assert not stale.exists()


def test_a_started_one_is_detached_and_ends_by_itself(home, ledger):
    """For real: its own session, no child of ours, gone when nothing is left to guard."""
    assert start_janitor(home) is True
    deadline = time.monotonic() + 30
    while not held(lock_path(home.leases)) and time.monotonic() < deadline:
        time.sleep(0.01)
    pid = int(lock_path(home.leases).read_text().split()[1])
    with open(f"/proc/{pid}/stat") as file:
        parent, _, session = file.read().rpartition(")")[2].split()[1:4]
    assert int(session) == pid or int(parent) == 1
    while held(lock_path(home.leases)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
