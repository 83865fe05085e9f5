"""The contract between containers: separate PID namespaces, other uids, one kernel."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.bookbag import (
    BookbagSignal,
    Watcher,
    acquire_lock,
    locked_change,
    locked_update_bookbag,
    read_bookbag,
    release_lock,
    wait_for_verdicts,
    write_bookbag,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from testcontainers.core.container import DockerContainer

pytestmark = pytest.mark.engine

TIMES = 80

HAMMER = f"""
import os
from orchestrator.bookbag import BookbagSignal, Watcher, locked_change, locked_update_bookbag
assert os.getpid() == 1
WHO = "%s"
with Watcher(os.environ["SIGNAL_DIR"]) as watcher:
    BookbagSignal(WHO).ready()
    while not BookbagSignal("go").check():
        watcher.wait(60)
for turn in range({TIMES}):
    assert locked_change("b", lambda bag: {{**bag, "count": bag["count"] + 1}}, 60)
    assert locked_update_bookbag("b", lock_timeout=60, **{{f"{{WHO}}_{{turn}}": turn}})
"""

HOLDER = """
import signal
from orchestrator.bookbag import BookbagSignal, acquire_lock
assert acquire_lock("b", 0)
BookbagSignal("held").ready()
signal.pause()
"""

TEACHER = """
import os
from orchestrator.bookbag import *
for who in ("cto", "coo"):
    with Watcher(os.environ["SIGNAL_DIR"]) as watcher:
        assert watcher.notified
        BookbagSignal(who + "-watches").ready()
        while not ("b" in ready_beads() and awaits(read_bookbag("b"), who)):
            assert watcher.wait(60), "nothing woke the teacher"
    def review(bag):
        state = state_after_review(bag["state"], who)
        return advance({**bag, who + "_verdict": "PASS"}, state, who)
    assert locked_change("b", review, 60)
    BookbagSignal("b").clear_if_reviewed()
"""


def until(condition: Callable[[], object], what: str, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.01)


def ended_well(container: DockerContainer) -> None:
    result = container.get_wrapped_container().wait(timeout=180)
    assert result["StatusCode"] == 0, container.get_logs()


def test_two_containers_and_the_principal_hammer_one_bookbag_and_no_update_is_lost(container, dirs):
    """Both writers in containers are PID 1 of their own namespace; a third writes on the host, as another uid."""
    write_bookbag("b", count=0, dirs=dirs)
    writers = [container(HAMMER % who) for who in ("cto", "coo")]
    until(lambda: all(BookbagSignal(who, dirs=dirs).check() for who in ("cto", "coo")), "both containers are up")
    BookbagSignal("go", dirs=dirs).ready()
    for turn in range(TIMES):
        assert locked_change("b", lambda bag: {**bag, "count": bag["count"] + 1}, 60, dirs=dirs)
        assert locked_update_bookbag("b", lock_timeout=60, dirs=dirs, **{f"principal_{turn}": turn})
    for writer in writers:
        ended_well(writer)
    bag = read_bookbag("b", dirs=dirs)
    assert bag["count"] == 3 * TIMES
    assert all(bag[f"{who}_{turn}"] == turn for who in ("cto", "coo", "principal") for turn in range(TIMES))


def test_a_killed_container_frees_its_lock(container, dirs):
    holder = container(HOLDER)
    until(BookbagSignal("held", dirs=dirs).check, "the container has the lock")
    assert not acquire_lock("b", 0, dirs=dirs)
    with open(f"{dirs.locks}/b.lock", encoding="ascii") as file:
        assert " pid 1 " in file.read()  # a PID that is alive here as well, and says nothing
    wrapped = holder.get_wrapped_container()
    wrapped.kill("SIGKILL")
    wrapped.wait(timeout=60)
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)


def test_a_paused_container_keeps_its_lock(container, dirs):
    wrapped = container(HOLDER).get_wrapped_container()
    until(BookbagSignal("held", dirs=dirs).check, "the container has the lock")
    wrapped.pause()
    try:
        assert not acquire_lock("b", 0.2, dirs=dirs)
    finally:
        wrapped.unpause()


def test_a_flag_wakes_a_teacher_and_its_verdicts_wake_the_principal(container, dirs):
    """No interval is short enough to help: only notification across the bind mount ends these waits in time."""
    write_bookbag("b", dirs=dirs)
    teacher = container(TEACHER)
    until(BookbagSignal("cto-watches", dirs=dirs).check, "the teacher watches")
    BookbagSignal("b", dirs=dirs).ready()
    assert wait_for_verdicts("b", 100, 100, dirs=dirs) == ("PASS", "PASS")
    ended_well(teacher)
    assert read_bookbag("b", dirs=dirs)["state"] == "REVIEWED"
    assert not BookbagSignal("b", dirs=dirs).check()


def test_files_can_be_opened_on_both_sides_whoever_made_them(container, dirs, home):
    """The principal may be root while the teachers are not: each side replaces and locks what the other made."""
    write_bookbag("b", dirs=dirs)
    assert acquire_lock("b", 0, dirs=dirs)
    release_lock("b", dirs=dirs)
    BookbagSignal("b", dirs=dirs).ready()
    ended_well(
        container(
            "from orchestrator.bookbag import *\n"
            "assert locked_update_bookbag('b', lock_timeout=0, seen=True)\n"
            "write_bookbag('c'); assert acquire_lock('c', 0); release_lock('c'); BookbagSignal('c').ready()\n"
            "BookbagSignal('b').clear()\n"
        )
    )
    assert read_bookbag("b", dirs=dirs)["seen"] is True
    assert locked_update_bookbag("c", lock_timeout=0, dirs=dirs, seen=True)
    owners = {
        (entry.name, entry.stat().st_uid, oct(entry.stat().st_mode & 0o777))
        for folder in (dirs.bookbags, dirs.signals, dirs.locks)
        for entry in os.scandir(folder)
    }
    assert owners == {(name, home.uid, "0o600") for name in ("b.json", "c.json", "b.lock", "c.lock", "c.ready")}, (
        json.dumps(sorted(owners))
    )


def test_a_watcher_on_the_host_sees_a_containers_flag(container, dirs):
    with Watcher(dirs.signals) as watcher:
        assert watcher.notified
        container("from orchestrator.bookbag import BookbagSignal; BookbagSignal('b').ready()")
        assert watcher.wait(100) == {"b.ready"}
