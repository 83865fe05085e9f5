"""Owner alive means lock held, whatever became of the process that held it."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from orchestrator.principal.lease import Lease, bead_lease_path, held, slot

HOLD = (
    "import sys, time; from pathlib import Path; from orchestrator.principal.lease import Lease\n"
    "lease = Lease.take(Path(sys.argv[1])); print('held' if lease else 'refused', flush=True); time.sleep(60)"
)


@pytest.fixture
def holder(tmp_path):
    path = bead_lease_path(tmp_path, "b1")
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield path, process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lease_is_held_by_one(holder):
    path, _ = holder
    assert held(path)
    assert Lease.take(path) is None


def test_a_killed_holder_frees_it_at_once(holder):
    path, process = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    lease = Lease.take(path)
    assert lease is not None
    lease.release()


def test_a_lease_whose_file_was_removed_by_its_holder_can_be_taken_again(tmp_path):
    path = tmp_path / "x.lock"
    first = Lease.take(path)
    first.release(forget=True)
    assert not path.exists()
    second = Lease.take(path)
    assert held(path)
    second.release()
    second.release()
    assert not held(path)


def test_a_released_lease_has_no_descriptor(tmp_path):
    lease = Lease.take(tmp_path / "x.lock")
    assert os.fstat(lease.fileno())
    lease.release()
    with pytest.raises(ValueError, match="released"):
        lease.fileno()


def test_no_more_than_the_slots_are_held_at_once(tmp_path):
    inside, most, waited = [], [], []
    guard = threading.Lock()

    def work():
        with slot(tmp_path, "start", 2, on_wait=lambda: waited.append(1)):
            with guard:
                inside.append(1)
                most.append(len(inside))
            threading.Event().wait(0.1)
            with guard:
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 2
    assert len(most) == 6
    assert waited
