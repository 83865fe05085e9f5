"""Something is killed while a student works or is judged: each layer alone, and the standing parts (R-36, R-49, R-50)."""

import os
import signal
import time
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_BEAD, LABEL_DEADLINE, LABEL_HOME, LABEL_KIND, Kind
from orchestrator.principal.janitor import lock_path
from orchestrator.principal.lease import bead_lease_path, held

pytestmark = pytest.mark.standing
SLOW = "[rehearse: slow 4]"


@pytest.fixture
def slow(crashes):
    """A bead whose student takes some seconds, its principal, and its container."""
    bead = crashes.bead()
    principal = crashes.start(bead, task=f"{SLOW} [rehearse: write made.txt]")
    yield bead, principal, crashes.running(bead)
    if principal.poll() is None:
        crashes.kill(principal)
    crashes.janitor()


def test_the_janitor_adopts_a_running_student_and_takes_it_to_its_end(crashes, bystanders):
    bead = crashes.bead()
    principal = crashes.start(bead, task=f"{SLOW} [rehearse: write made.txt]", SCHOOL_JANITOR="true")
    container = crashes.running(bead)
    crashes.until(lambda: held(lock_path(crashes.home.leases)))
    crashes.kill(principal)
    crashes.until(lambda: crashes.row(bead)["status"] == "ended", 90)
    assert crashes.row(bead)["outcome"] == "accepted"
    adopted = [event for event in crashes.events(bead) if event["kind"] == "adopted"]
    assert len(adopted) == 1
    assert crashes.row(bead)["data"]["report"]["output"]
    crashes.until(lambda: not held(lock_path(crashes.home.leases)), 30)  # nothing is left to guard
    assert crashes.left(bead) == []
    assert container.id not in [c.id for c in crashes.engine.list({LABEL_HOME: crashes.home.id})]


def test_two_resumers_never_both_act(crashes, slow):
    bead, principal, _ = slow
    crashes.kill(principal)
    resumers = [crashes.school.start("resume", bead) for _ in range(3)]
    outputs = [resumer.communicate(timeout=120) for resumer in resumers]
    assert crashes.row(bead)["outcome"] == "accepted"
    assert [event["kind"] for event in crashes.events(bead)].count("adopted") == 1, outputs
    assert sorted("somebody drives it" in stderr for _, stderr in outputs) == [False, True, True]
    assert crashes.left(bead) == []


def test_the_engine_tells_how_a_student_ended_that_nobody_heard(crashes):
    """The container removed itself, and its principal died before it noted anything."""
    bead = crashes.bead()
    crashes.drive_all([(bead, "run", {})])
    assert crashes.engine.list({LABEL_HOME: crashes.home.id, LABEL_BEAD: bead}) == []
    assert crashes.school.run("resume", bead).returncode == 0
    assert crashes.row(bead)["outcome"] == "accepted"
    assert crashes.left(bead) == []


def test_without_anybody_a_student_is_gone_at_its_deadline_and_its_work_is_kept_later(crashes, bystanders):
    """Only the lifetime cap: all of the school's processes are dead, and none comes back."""
    bead = crashes.bead()
    with crashes.nobody_recovers():
        task = "[rehearse: run echo begun > made.txt && sleep 300]"
        principal = crashes.start(bead, task=task, timeout=6)
        container = crashes.running(bead)
        crashes.until(lambda: list((crashes.home.leaves / bead).glob("study-*/made.txt")))
        os.killpg(principal.pid, signal.SIGKILL)
        principal.wait()
        deadline = int(container.labels[LABEL_DEADLINE])
        labels = {LABEL_HOME: crashes.home.id, LABEL_BEAD: bead}
        crashes.until(lambda: not crashes.engine.list(labels), deadline + 5 - time.time())
        assert crashes.row(bead)["status"] == "running"
    crashes.sweep()
    assert crashes.row(bead)["outcome"] == "lost"
    assert crashes.git("show", f"{crashes.ref(bead)}:made.txt") == "begun"
    assert crashes.left(bead) == []


def test_what_a_student_says_of_itself_explains_a_failure_and_proves_nothing(crashes):
    from orchestrator.principal.adoption import unseen_end

    outbox = crashes.home.school / "p-unseen00"
    outbox.mkdir()
    said = outbox / "outcome.json"
    said.write_text('{"status": "completed", "reason": "trust me"}')
    assert unseen_end(outbox).outcome == "lost"
    said.write_text('{"status": "timed_out", "reason": "slow"}')
    assert unseen_end(outbox).outcome == "timed_out"
    said.unlink()
    assert unseen_end(outbox).outcome == "lost"
    outbox.rmdir()


def test_a_killed_janitor_is_followed_by_the_next_spawns(crashes, slow):
    """Its worker holds the lease and goes on; a killed worker's bead is adopted again."""
    bead, principal, _ = slow
    crashes.kill(principal)
    janitor = crashes.school.start("janitor")
    lease = bead_lease_path(crashes.home.leases, bead)
    crashes.until(lambda: held(lease))
    crashes.kill(janitor)
    for stream in (janitor.stdout, janitor.stderr):
        stream.close()
    worker = int(lease.read_text().split()[1])
    os.kill(worker, signal.SIGKILL)
    crashes.until(lambda: not held(lease))
    crashes.janitor()
    assert crashes.row(bead)["outcome"] == "accepted"
    assert [event["kind"] for event in crashes.events(bead)].count("adopted") == 2
    assert crashes.left(bead) == []


def test_a_janitor_takes_little_memory_and_no_time_when_idle(crashes, slow):
    janitor = crashes.school.start("janitor")
    pid = janitor.pid
    crashes.until(lambda: held(lock_path(crashes.home.leases)))
    time.sleep(1)
    before = _cpu(pid)
    time.sleep(2)
    used, memory = _cpu(pid) - before, _rss(pid)
    janitor.send_signal(signal.SIGTERM)
    janitor.communicate(timeout=30)
    assert used <= 0.02  # seconds; the clock ticks 100 times a second
    assert memory < 45 << 20


def _cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- the standing parts --------------------------------------------------------------------------------------------------


def kill_part(crashes, kind):
    """SIGKILL a standing part's first process, as a crash does; the engine starts it again."""
    container = crashes.engine.list({LABEL_HOME: crashes.home.id, LABEL_KIND: kind})[0]
    os.kill(container.pid, signal.SIGKILL)
    crashes.until(lambda: (now := crashes.engine.inspect(container.id)).state == "running" and now.pid != container.pid)


def test_a_teacher_killed_in_mid_review_leaves_the_bead_for_its_next_instance(crashes):
    """R-36: reviewed once."""
    bead = crashes.bead()
    principal = crashes.start(bead, task="[rehearse: teacher-slow 3] [rehearse: write made.txt]")
    bag = crashes.home.bookbags / f"{bead}.json"
    crashes.until(lambda: bag.exists() and '"cto_picked_up_at": "' in bag.read_text())
    kill_part(crashes, Kind.TEACHER_CTO)
    assert principal.wait(timeout=180) == 0
    report = crashes.row(bead)["data"]["report"]
    assert (report["outcome"], report["review"]) == ("accepted", "async")
    assert report["verdicts"] == {"cto": "PASS", "coo": "PASS"}
    assert crashes.left(bead) == []


def test_a_gate_killed_in_mid_call_is_met_again(crashes, slow):
    bead, principal, _ = slow
    kill_part(crashes, Kind.GATE)
    assert principal.wait(timeout=120) == 0
    assert crashes.row(bead)["outcome"] == "accepted"
    assert crashes.left(bead) == []


def test_an_omniroute_killed_in_mid_call_ends_in_a_typed_outcome_and_nothing_is_left(crashes, slow):
    bead, principal, _ = slow
    kill_part(crashes, Kind.OMNIROUTE)
    principal.wait(timeout=180)
    crashes.until(lambda: crashes.school.run("status", "--json").returncode == 0)
    crashes.school.run("up")
    crashes.janitor()
    assert crashes.row(bead)["outcome"] in {"accepted", "gateway_denied", "task_failed"}
    assert crashes.left(bead) == []
    assert crashes.left_anywhere() == []
