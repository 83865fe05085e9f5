# The code under test speaks in descriptors and in paths as text, and so do its tests.

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from orchestrator.bookbag import (
    BookbagSignal,
    Watcher,
    locked_update_bookbag,
    wait,
    wait_for_bookbag,
    wait_for_verdicts,
    wait_until,
    write_bookbag,
)
from orchestrator.bookbag.files import replace_file
from orchestrator.errors import BookbagCorruptError, HandoffTimeoutError

LONG = 60.0  # only a lost wake-up waits so long


@pytest.fixture(params=["notified", "polled"])
def watcher(request, tmp_path):
    with Watcher(tmp_path / "w", interval=0.02, notify=request.param == "notified") as watching:
        yield watching


def folder(watching):
    return watching._folder


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_linux_notifies(tmp_path):
    with Watcher(tmp_path) as watching:
        assert watching.notified


def test_new_changed_and_removed_files_are_reported(watcher):
    replace_file(folder(watcher), "a", b"1")
    assert watcher.wait(LONG) == {"a"}
    replace_file(folder(watcher), "a", b"2")
    assert watcher.wait(LONG) == {"a"}
    os.unlink(f"{folder(watcher)}/a")
    assert watcher.wait(LONG) == {"a"}


def test_nothing_changed_is_empty(watcher):
    assert watcher.wait(0) == set()
    assert watcher.wait(0.05) == set()


def test_unfinished_files_wake_nobody(watcher):
    with open(f"{folder(watcher)}/.a.json.00.tmp", "wb"):
        pass
    assert watcher.wait(0.1) == set()


def test_a_change_between_the_watch_and_the_wait_is_not_lost(watcher):
    for turn in range(50):
        replace_file(folder(watcher), f"f{turn}", b"", durable=False)
        seen = set()
        while f"f{turn}" not in seen:
            changed = watcher.wait(LONG)
            assert changed
            seen |= changed


def test_a_change_from_another_thread_ends_the_wait(watcher):
    timer = threading.Timer(0.05, replace_file, (folder(watcher), "a", b""))
    timer.start()
    assert watcher.wait(LONG) == {"a"}
    timer.join()


def test_wake_ends_the_wait_from_another_thread(watcher):
    watcher.wake()
    assert watcher.wait(LONG) == set()
    timer = threading.Timer(0.05, watcher.wake)
    timer.start()
    assert watcher.wait(LONG) == set()
    timer.join()
    assert watcher.wait(0) == set()


def test_a_folder_that_was_replaced_is_watched_again(watcher):
    path = folder(watcher)
    replace_file(path, "a", b"")
    assert watcher.wait(LONG)
    os.rename(path, path + ".old")
    replace_file(path, "b", b"")
    seen = set()
    while "b" not in seen:
        changed = watcher.wait(LONG)
        assert changed
        seen |= changed
    replace_file(path, "c", b"")
    while "c" not in seen:
        changed = watcher.wait(LONG)
        assert changed
        seen |= changed


def test_a_folder_that_is_gone_for_a_while_is_looked_for(watcher):
    path = folder(watcher)
    os.rmdir(path)
    watcher.wait(0.1)
    replace_file(path, "b", b"")
    seen = set()
    while "b" not in seen:
        changed = watcher.wait(LONG)
        assert changed
        seen |= changed


def test_more_events_than_the_kernel_keeps_name_the_whole_folder(tmp_path):
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
        limit = int(file.read())
    if limit > 50_000:
        pytest.skip("the queue is too long here to be filled in a test")
    with Watcher(tmp_path) as watching:
        replace_file(str(tmp_path), "kept", b"")
        for turn in range(limit // 2 + 10):
            (tmp_path / f"f{turn % 7}").touch()
            (tmp_path / f"f{turn % 7}").unlink()
        replace_file(str(tmp_path), "last", b"")
        assert {"kept", "last"} <= watching.wait(LONG)
        replace_file(str(tmp_path), "after", b"")
        assert "after" in watching.wait(LONG)


def test_without_inotify_the_folder_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(wait, "_LIBRARY", None)
    with Watcher(tmp_path, interval=0.02) as watching:
        assert not watching.notified
        (tmp_path / "a").touch()
        assert watching.wait(LONG) == {"a"}


def test_a_closed_watcher_can_be_closed_again(tmp_path):
    watching = Watcher(tmp_path)
    watching.close()
    watching.close()


SIGNALLER = """
import sys
from orchestrator.bookbag import BookbagSignal, locked_update_bookbag
for line in sys.stdin:
    BookbagSignal(line.strip()).ready()
"""


def test_signals_of_another_process_wake_the_watcher(dirs, python):
    with Watcher(dirs.signals) as watching:
        other = python(SIGNALLER)
        for turn in range(20):
            other.stdin.write(f"b{turn}\n")
            other.stdin.flush()
            assert watching.wait(LONG) == {f"b{turn}.ready"}


class TestWaitingForFields:
    def test_what_is_there_is_returned_at_once(self, dirs):
        write_bookbag("b", {"cto_verdict": "PASS", "coo_verdict": "FAIL"}, dirs=dirs)
        assert wait_for_verdicts("b", 0, dirs=dirs) == ("PASS", "FAIL")
        assert wait_for_bookbag("b", timeout=0, dirs=dirs)["bead"] == "b"

    def test_verdicts_that_come_one_after_the_other_end_the_wait(self, dirs):
        write_bookbag("b", dirs=dirs)

        def teachers():
            for fields in ({"cto_verdict": "FAIL"}, {"coo_verdict": "PASS"}):
                time.sleep(0.05)
                write_bookbag("other", dirs=dirs)
                locked_update_bookbag("b", dirs=dirs, **fields)

        thread = threading.Thread(target=teachers)
        thread.start()
        assert wait_for_verdicts("b", LONG, LONG, dirs=dirs) == ("FAIL", "PASS")
        thread.join()

    def test_no_wake_up_is_lost_however_the_write_falls(self, dirs):
        """The writer is released at the same moment as the waiter; an interval as long as the timeout hides nothing."""
        for turn in range(40):
            bead = f"b{turn}"
            start = threading.Barrier(2)

            def write(bead=bead, start=start, turn=turn):
                start.wait()
                time.sleep(turn % 8 * 0.0005)
                write_bookbag(bead, {"x": 1}, dirs=dirs)

            thread = threading.Thread(target=write)
            thread.start()
            start.wait()
            assert wait_for_bookbag(bead, ["x"], LONG, LONG, dirs=dirs)["x"] == 1
            thread.join()

    def test_the_interval_finds_what_nobody_notified_of(self, dirs, monkeypatch):
        monkeypatch.setattr(Watcher, "wait", lambda self, timeout: time.sleep(min(timeout, 0.02)) or set())
        thread = threading.Timer(0.1, write_bookbag, ("b",), {"dirs": dirs})
        thread.start()
        assert wait_for_bookbag("b", timeout=LONG, interval=0.05, dirs=dirs)
        thread.join()

    def test_the_timeout_names_the_state_of_each_field(self, dirs):
        with pytest.raises(HandoffTimeoutError, match="no bookbag"):
            wait_for_verdicts("b", 0.01, dirs=dirs)
        attempts = [{"at": "2026-01-01T00:00:00Z", "reason": "model answered 503"}]
        write_bookbag("b", {"cto_verdict": "PASS", "coo_attempts": attempts}, dirs=dirs)
        with pytest.raises(
            TimeoutError,
            match="cto_verdict PASS, coo_verdict empty after 1 failed attempts, the last: model answered 503",
        ):
            wait_for_verdicts("b", 0.01, dirs=dirs)
        with pytest.raises(HandoffTimeoutError, match="summary empty, odd missing, accepted False"):
            wait_for_bookbag("b", ["summary", "odd", "accepted"], 0.01, dirs=dirs)

    def test_false_and_zero_are_values(self, dirs):
        write_bookbag("b", {"zero": 0}, dirs=dirs)
        assert wait_for_bookbag("b", ["accepted", "zero"], 0, dirs=dirs)

    def test_a_condition_of_ones_own(self, dirs):
        assert wait_until("b", lambda bag: bag is None, 0, dirs=dirs) is None
        with pytest.raises(HandoffTimeoutError, match="no bookbag"):
            wait_until("b", lambda bag: False, 0.01, dirs=dirs)

    def test_a_corrupt_bookbag_is_not_waited_for(self, dirs):
        replace_file(dirs.bookbags, "b.json", b"{")
        with pytest.raises(BookbagCorruptError):
            wait_for_verdicts("b", LONG, dirs=dirs)


def test_the_flag_comes_after_the_bookbag_for_every_reader(dirs, python):
    """Whoever sees the flag can read the bookbag whole."""
    other = python(
        "import sys\n"
        "from orchestrator.bookbag import BookbagSignal, write_bookbag\n"
        "for n in range(50):\n"
        "    write_bookbag(f'b{n}', {'output': 'x' * 50000, 'end': n}); BookbagSignal(f'b{n}').ready()\n"
    )
    seen = set()
    with Watcher(dirs.signals) as watching:
        while len(seen) < 50:
            for turn in range(50):
                if turn not in seen and BookbagSignal(f"b{turn}", dirs=dirs).check():
                    assert wait_for_bookbag(f"b{turn}", ["end"] if turn else [], 0, dirs=dirs)["end"] == turn
                    seen.add(turn)
            if len(seen) < 50:
                watching.wait(LONG)
    assert other.wait(LONG) == 0
