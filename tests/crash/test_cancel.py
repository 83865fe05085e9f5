"""Whoever ends a bead, however: its student is gone within two seconds, the record says so, and its work is kept."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_BEAD, LABEL_HOME

pytestmark = pytest.mark.standing

TASK = "[rehearse: run echo begun > made.txt && sleep 300]"
GONE_SECONDS = 2.0
SLACK = 3.0
"""A machine that runs other tests beside this one; the time itself is printed by the soak."""


@pytest.fixture
def at_work(crashes):
    """Return a function that starts `school spawn` and waits until its student has begun to write."""
    started = []

    def begin(*options, **popen):
        bead = crashes.bead()
        argv = [
            sys.executable, "-m", "orchestrator.cli.main", "spawn", "--repo", str(crashes.repo), "--bead", bead,
            "--agent", "light", "--model", "rehearsal", *options, TASK,
        ]  # fmt: skip
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(argv, env=crashes.school.env, start_new_session=True, **{**streams, **popen})
        started.append(process)
        crashes.until(lambda: list((crashes.home.leaves / bead).glob("study-*/made.txt")))
        return bead, process

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()


def gone(crashes, bead):
    """Wait until the bead's student is gone; return the seconds it took."""
    started = time.monotonic()
    labels = {LABEL_HOME: crashes.home.id, LABEL_BEAD: bead}
    crashes.until(lambda: not crashes.engine.list(labels), GONE_SECONDS + SLACK, 0.02)
    return time.monotonic() - started


def check(crashes, bead):
    crashes.until(lambda: crashes.row(bead)["status"] == "ended", 30)
    row = crashes.row(bead)
    assert row["outcome"] == "cancelled"
    assert crashes.left(bead) == []
    assert crashes.git("show", f"{row['head_sha']}:made.txt") == "begun"
    assert crashes.ref(bead) == row["head_sha"]
    assert crashes.scored(bead) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels(crashes, at_work, number):
    bead, process = at_work()
    process.send_signal(number)
    gone(crashes, bead)
    assert process.wait(timeout=30) == 130
    check(crashes, bead)


def test_more_signals_do_not_disturb_the_removal(crashes, at_work):
    bead, process = at_work()
    for _ in range(40):
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C: git's processes get it too
        time.sleep(0.01)
    assert process.wait(timeout=30) == 130
    check(crashes, bead)


def test_a_closed_terminal_cancels(crashes, at_work):
    """SIGHUP comes, and everything written to the terminal from then on fails."""
    master, slave = pty.openpty()
    bead, process = at_work(stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.close(master)  # the hang-up; this session has no controlling terminal, so its signal is sent by hand
    process.send_signal(signal.SIGHUP)
    gone(crashes, bead)
    process.wait(timeout=30)
    check(crashes, bead)


def test_a_closed_terminal_without_its_signal_does_not_end_a_bead(crashes):
    """nohup: what can't be shown is not shown, and the bead goes its way."""
    master, slave = pty.openpty()
    bead = crashes.bead()
    argv = [
        sys.executable, "-m", "orchestrator.cli.main", "spawn", "--repo", str(crashes.repo), "--bead", bead,
        "--agent", "light", "--model", "rehearsal", "[rehearse: slow 1] [rehearse: write made.txt]",
    ]  # fmt: skip
    process = subprocess.Popen(
        ["nohup", *argv],
        cwd=crashes.school.home.root,  # where it leaves its nohup.out
        env={**crashes.school.env, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    crashes.running(bead)
    os.close(master)
    process.send_signal(signal.SIGHUP)
    process.wait(timeout=120)
    assert crashes.row(bead)["outcome"] == "accepted"
    assert crashes.left(bead) == []


def test_cancel_from_another_terminal(crashes, at_work):
    bead, process = at_work()
    done = crashes.school.run("cancel", bead)
    assert done.returncode == 0, done.stderr
    assert process.wait(timeout=30) == 130
    check(crashes, bead)


def test_cancel_of_a_detached_bead(crashes):
    bead = crashes.bead()
    crashes.school.run("spawn", "--detach", "--repo", crashes.repo, "--bead", bead, "--agent", "light", TASK)
    crashes.until(lambda: list((crashes.home.leaves / bead).glob("study-*/made.txt")))
    done = crashes.school.run("cancel", bead, "--json")
    assert done.returncode == 0, done.stderr
    check(crashes, bead)


def test_cancel_of_a_bead_that_nobody_drives(crashes, at_work):
    with crashes.nobody_recovers():
        bead, process = at_work()
        crashes.kill(process)
        done = crashes.school.run("cancel", bead)
    assert done.returncode == 0, done.stderr
    check(crashes, bead)


def test_cancel_while_it_is_verified_and_while_it_is_judged(crashes):
    for options, point in (
        (("--verify", "sleep 300", "[rehearse: write made.txt]"), "verify.run"),
        (("[rehearse: teacher-slow 4] [rehearse: write made.txt]",), "review"),
    ):
        bead = crashes.bead()
        process = crashes.school.start(
            "spawn", "--repo", crashes.repo, "--bead", bead, "--agent", "light", *options, HANDOFF_TIMEOUT=300
        )

        def reached(bead=bead, point=point):
            events = crashes.events(bead) if crashes.row(bead) else []
            return any(event["kind"] == "intent" and event["step"] == point for event in events)

        crashes.until(reached)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert crashes.row(bead)["outcome"] == "cancelled"
        assert crashes.ref(bead)
        crashes.until(lambda bead=bead: crashes.left(bead) == [])  # a teacher's claim goes with its last call


def test_a_bead_that_has_ended_is_not_cancelled(crashes):
    bead = crashes.bead()
    assert crashes.drive_all([(bead, "", {})]) == {bead: 0}
    done = crashes.school.run("cancel", bead)
    assert done.returncode == 2
    assert "has ended already: accepted" in done.stderr
