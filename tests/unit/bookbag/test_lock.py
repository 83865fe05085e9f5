# The code under test speaks in descriptors and in paths as text, and so do its tests.

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from orchestrator.bookbag import (
    BeadLock,
    acquire_lock,
    bead_lock,
    forget_lock,
    locked_change,
    locked_update_bookbag,
    read_bookbag,
    release_lock,
    write_bookbag,
)
from orchestrator.errors import BookbagCorruptError

HOLD = """
import sys
from orchestrator.bookbag import acquire_lock
print(acquire_lock("b"), flush=True)
sys.stdin.read()
"""

HAMMER = """
import sys
from orchestrator.bookbag import locked_change, locked_update_bookbag
who, times = sys.argv[1], int(sys.argv[2])
for turn in range(times):
    assert locked_change("b", lambda bag: {**bag, "count": bag["count"] + 1}, 60)
    assert locked_update_bookbag("b", lock_timeout=60, **{f"{who}_{turn}": turn})
"""


def test_two_processes_hammer_one_bookbag_and_no_update_is_lost(dirs, python):
    write_bookbag("b", count=0, dirs=dirs)
    workers = [python(HAMMER, who, "60") for who in ("cto", "coo")]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    bag = read_bookbag("b", dirs=dirs)
    assert bag["count"] == 120
    assert all(bag[f"{who}_{turn}"] == turn for who in ("cto", "coo") for turn in range(60))


def test_threads_of_one_process_exclude_each_other_too(dirs):
    write_bookbag("b", count=0, dirs=dirs)

    def work():
        for _ in range(25):
            assert locked_change("b", lambda bag: {**bag, "count": bag["count"] + 1}, 60, dirs=dirs)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_bookbag("b", dirs=dirs)["count"] == 100


def test_a_killed_holder_frees_the_lock(dirs, python):
    holder = python(HOLD)
    assert holder.stdout.readline() == "True\n"
    assert not acquire_lock("b", 0, dirs=dirs)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert acquire_lock("b", 0, dirs=dirs)  # at once: without any waiting
    release_lock("b", dirs=dirs)


def test_a_stopped_holder_keeps_it(dirs, python):  # alive is what the kernel says, not a PID test
    holder = python(HOLD)
    assert holder.stdout.readline() == "True\n"
    holder.send_signal(signal.SIGSTOP)
    assert not acquire_lock("b", 0.1, dirs=dirs)


def test_a_lock_file_that_was_left_behind_is_no_lock(dirs):
    os.mkdir(dirs.locks)
    with open(f"{dirs.locks}/b.lock", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")  # of a process that lives
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)


def test_the_line_inside_names_the_owner_while_it_holds(dirs):
    with bead_lock("b", dirs=dirs), open(f"{dirs.locks}/b.lock", encoding="ascii") as file:
        assert f"pid {os.getpid()} since 2" in file.read()
    with open(f"{dirs.locks}/b.lock", encoding="ascii") as file:
        assert file.read() == ""


def test_acquire_waits_until_the_lock_is_free(dirs):
    first = BeadLock("b", dirs=dirs)
    assert first.acquire()
    got = []
    waiter = threading.Thread(target=lambda: got.append(locked_update_bookbag("b", lock_timeout=60, dirs=dirs, x=1)))
    write_bookbag("b", dirs=dirs)
    waiter.start()
    time.sleep(0.05)
    assert got == []
    first.release()
    waiter.join()
    assert got[0]["x"] == 1


def test_the_context_manager_raises_when_the_lock_is_not_to_be_had(dirs):
    with bead_lock("b", dirs=dirs):
        with pytest.raises(TimeoutError, match="bead b"), bead_lock("b", 0.02, dirs=dirs):
            pass
        with bead_lock("c", 0, dirs=dirs):
            pass


def test_release_frees_only_what_this_thread_took(dirs):
    release_lock("b", dirs=dirs)  # missing is fine
    assert acquire_lock("b", dirs=dirs)
    other = threading.Thread(target=release_lock, args=("b",), kwargs={"dirs": dirs})
    other.start()
    other.join()
    assert not acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)
    release_lock("b", dirs=dirs)
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)


def test_a_held_lock_object_refuses_a_second_acquire(dirs):
    with bead_lock("b", dirs=dirs) as lock, pytest.raises(RuntimeError):
        lock.acquire(0)


def test_no_lock_in_time_and_no_bookbag_are_none(dirs):
    assert locked_update_bookbag("b", dirs=dirs, x=1) is None
    write_bookbag("b", dirs=dirs)
    with bead_lock("b", dirs=dirs):
        assert locked_update_bookbag("b", lock_timeout=0.02, dirs=dirs, x=1) is None
    assert "x" not in read_bookbag("b", dirs=dirs)
    assert locked_update_bookbag("b", dirs=dirs, x=1)["x"] == 1
    assert locked_update_bookbag("b", {"dirs": 1}, dirs=dirs, x=2)["dirs"] == 1


def test_a_change_that_declines_or_fails_writes_nothing_and_frees_the_lock(dirs):
    before = write_bookbag("b", dirs=dirs)
    assert locked_change("b", lambda bag: None, dirs=dirs) == before

    def fail(bag):
        bag["x"] = 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        locked_change("b", fail, dirs=dirs)
    assert read_bookbag("b", dirs=dirs) == before
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)


def test_a_corrupt_bookbag_raises_and_frees_the_lock(dirs):
    write_bookbag("b", dirs=dirs)
    with open(f"{dirs.bookbags}/b.json", "w", encoding="ascii") as file:
        file.write("{")
    for _ in range(2):
        with pytest.raises(BookbagCorruptError):
            locked_update_bookbag("b", lock_timeout=0, dirs=dirs, x=1)


class TestForgetting:
    def test_the_file_goes_only_when_nobody_holds_the_lock(self, dirs):
        with bead_lock("b", dirs=dirs):
            assert not forget_lock("b", dirs=dirs)
            assert os.listdir(dirs.locks) == ["b.lock"]
        assert forget_lock("b", dirs=dirs)
        assert os.listdir(dirs.locks) == []

    def test_a_waiter_is_not_left_with_the_lock_of_a_file_that_is_gone(self, dirs, monkeypatch):
        """Between a waiter's open and its flock the holder removes the file: the waiter takes the new file's lock."""
        import fcntl

        first = BeadLock("b", dirs=dirs)
        assert first.acquire()
        flock = fcntl.flock

        def removed_in_between(descriptor, operation):
            monkeypatch.undo()
            first.release(unlink=True)
            flock(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", removed_in_between)
        second = BeadLock("b", dirs=dirs)
        assert second.acquire(1)
        assert not acquire_lock("b", 0, dirs=dirs)
        second.release()

    def test_removing_the_file_all_the_time_loses_no_update(self, dirs, python):
        write_bookbag("b", count=0, dirs=dirs)
        workers = [python(HAMMER, who, "40") for who in ("cto", "coo")]
        while any(worker.poll() is None for worker in workers):
            forget_lock("b", dirs=dirs)
            time.sleep(0.001)
        assert [worker.returncode for worker in workers] == [0, 0]
        assert read_bookbag("b", dirs=dirs)["count"] == 80


@pytest.mark.parametrize("make", [lambda path: os.symlink("elsewhere", path), os.mkfifo], ids=["link", "fifo"])
def test_what_is_no_regular_file_is_no_lock(dirs, make):
    os.mkdir(dirs.locks)
    make(f"{dirs.locks}/b.lock")
    with pytest.raises(BookbagCorruptError):
        acquire_lock("b", 0, dirs=dirs)
    assert not os.path.exists(f"{dirs.locks}/elsewhere")


def test_a_full_disk_keeps_nobody_from_the_lock(dirs, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    with bead_lock("b", dirs=dirs) as lock:
        assert lock.held


FORK = """
import os, signal, sys
from orchestrator.bookbag import acquire_lock
assert acquire_lock("b")
child = os.fork()
if child == 0:
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""


def test_a_forked_child_does_not_keep_its_dead_parents_lock(dirs, python):
    parent = python(FORK)
    assert parent.stdout.readline() == "forked\n"
    assert not acquire_lock("b", 0, dirs=dirs)
    parent.kill()
    parent.wait()
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)


def test_a_copy_of_the_descriptor_in_a_child_that_is_just_starting_does_not_keep_the_lock(dirs):
    lock = BeadLock("b", dirs=dirs)
    assert lock.acquire()
    copy = os.dup(lock._descriptor)  # what a child has between fork and exec
    lock.release()
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)
    os.close(copy)


def test_a_program_that_the_holder_started_does_not_keep_the_lock(dirs):
    lock = BeadLock("b", dirs=dirs)
    assert lock.acquire()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as program:
        lock.release()
        assert acquire_lock("b", 0, dirs=dirs)
        release_lock("b", dirs=dirs)
        program.kill()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_lock_that_root_took_first_is_open_to_the_folders_owner(dirs, tmp_path):
    os.mkdir(dirs.locks)
    os.chown(dirs.locks, 10001, 10001)
    with bead_lock("b", dirs=dirs):
        status = os.stat(f"{dirs.locks}/b.lock")
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (10001, 10001, 0o600)
        assert os.listdir(dirs.locks) == ["b.lock"]


def test_who_comes_late_leaves_no_lock_file_behind(dirs):
    """A teacher that ends its review after the bookbag was archived."""
    assert locked_update_bookbag("late-bead-1", {"cto_verdict": "PASS"}, dirs=dirs) is None
    assert os.listdir(dirs.locks) == []
