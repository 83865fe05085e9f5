"""Each claim that is made about a leaf's container, carried out from inside one."""

import json
import os
import time

import pytest

from orchestrator.engine.base import LABEL_BEAD, Exited
from orchestrator.errors import LeafNotBootedError
from orchestrator.leaf.ending import classify
from orchestrator.sandbox.outcome import Outcome

pytestmark = pytest.mark.engine


def test_it_runs_as_somebody_without_rights_who_has_a_name(run, home):
    _, text, _ = run("id -u; whoami; cat /proc/self/status; python3 -c 'import getpass; print(getpass.getuser())'")
    lines = text.splitlines()
    assert lines[0] == str(home.uid) != "0"
    assert lines[1] == "student"
    assert lines[-1] == "student"
    for capability in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{capability}:\t0000000000000000" in text
    assert "NoNewPrivs:\t1" in text
    assert "Seccomp:\t2" in text


def test_loopback_is_its_only_device_and_nothing_else_can_be_reached(run):
    _, text, _ = run(
        "cat /proc/net/dev | tail -n +3 | cut -d: -f1; "
        "python3 - <<'P'\n"
        "import socket\n"
        "for where in [('1.1.1.1', 53), ('169.254.169.254', 80), ('172.17.0.1', 2375)]:\n"
        "    s = socket.socket(); s.settimeout(3)\n"
        "    try: s.connect(where); print('REACHED', where)\n"
        "    except OSError as e: print('no', where[0], e.errno)\n"
        "try: socket.getaddrinfo('example.com', 80); print('RESOLVED')\n"
        "except OSError: print('no dns')\n"
        "P"
    )
    assert text.split()[0] == "lo"
    assert "REACHED" not in text
    assert "RESOLVED" not in text
    assert text.count("no ") == 4


def test_its_root_is_read_only_and_its_tmp_and_home_may_execute(run):
    _, text, _ = run(
        "touch /etc/x 2>&1; touch /usr/bin/x 2>&1; touch /school/lib/x 2>&1; touch /school/inbox/x 2>&1; "
        "printf '#!/bin/sh\\necho executed $0\\n' > /tmp/a; chmod +x /tmp/a; /tmp/a; "
        "cp /tmp/a $HOME/a; $HOME/a; df -k /tmp | tail -1"
    )
    assert text.count("Read-only file system") == 4
    assert "executed /tmp/a" in text
    assert "executed /home/student/a" in text


def test_no_engine_socket_and_no_path_of_the_host_is_inside(run, home):
    _, text, _ = run(
        "cat /proc/self/mountinfo; ls /var/run/docker.sock /run/docker.sock 2>&1; find / -xdev -type s 2>/dev/null"
    )
    assert "docker.sock" not in text.replace("cannot access '/var/run/docker.sock'", "").replace(
        "cannot access '/run/docker.sock'", ""
    )
    targets = {line.split()[4] for line in text.splitlines() if " - " in line}
    ours = {t for t in targets if t.startswith(("/workspace", "/school", "/home", "/etc/passwd", "/etc/group"))}
    assert ours == {
        "/workspace", "/workspace/.git", "/school/git", "/school/objects", "/school/inbox", "/school/outbox",
        "/home/student", "/etc/passwd", "/etc/group",
    }  # fmt: skip


def test_its_git_works_without_the_users_git_dir(run, sample):
    before = _snapshot(sample)
    record, text, frozen = run(
        "set -e; git status --short; git describe; git log --oneline | wc -l; echo a > new.txt; git add new.txt; "
        "git commit -q -m 'my own commit'; git branch feature; git stash list; echo b >> new.txt; git stash; git stash pop -q; "
        "git diff --stat; git fsck 2>&1 | tail -1; cat .git"
    )
    assert record.exit_code == 0, text
    assert "v1.0" in text
    assert "gitdir: /school/git" in text
    assert [change.path for change in frozen.files_changed] == ["new.txt"]
    assert frozen.student_messages == ("my own commit",)
    assert _snapshot(sample) == before


def test_the_pointer_to_its_git_dir_can_not_be_replaced(run):
    _, text, frozen = run(
        "rm -f .git 2>&1; mv .git x 2>&1; echo evil > .git; echo evil >> .git; ln -sf /tmp .git 2>&1; cat .git; true"
    )
    assert "gitdir: /school/git" in text
    assert frozen.head_sha is None


def test_pid_1_can_be_neither_stopped_nor_traced_nor_read(run):
    record, text, _ = run(
        "kill -STOP 1; kill -KILL 1; cat /proc/1/environ 2>&1 | head -c 100; ls /proc/1/fd 2>&1; "
        "python3 - <<'P'\nimport ctypes\nprint('attach', ctypes.CDLL(None, use_errno=True).ptrace(16, 1, 0, 0))\nP\necho still here"
    )
    assert "still here" in text
    assert "attach -1" in text
    assert text.count("Permission denied") >= 2
    assert record.exit_code == 0


def test_what_it_daemonised_ends_with_it(run, engine, home):
    record, _, _ = run("(setsid sh -c 'trap \"\" TERM HUP INT; while true; do sleep 1; done' &) ; echo left")
    assert record.exit_code == 0
    assert engine.list({LABEL_BEAD: "coder-general-0a0a0a0a"}) == []


def test_the_time_limit_ends_it(run):
    started = time.monotonic()
    record, _, _ = run("trap '' TERM INT; while true; do sleep 0.2; done", wall=2)
    assert classify(record.result, deadline_passed=record.deadline_passed).outcome is Outcome.TIMED_OUT
    assert time.monotonic() - started < 60


def test_the_memory_limit_ends_it(run):
    record, _, _ = run("exec python3 -c 'x = bytearray(1 << 30); print(len(x))'", memory=96 << 20)
    assert classify(record.result).outcome is Outcome.OUT_OF_MEMORY


def test_a_fork_bomb_stays_inside(run):
    record, _, _ = run("python3 -c 'import os\nwhile True: os.fork()' 2>/dev/null; echo over", wall=5, pids=64)
    assert isinstance(record.result, Exited)


def test_the_disk_limit_ends_it(run):
    record, _, _ = run("dd if=/dev/zero of=big bs=1M count=30 2>/dev/null; sleep 30", disk=20 << 20, wall=40)
    assert classify(record.result, disk_exceeded=record.disk_exceeded).outcome in {
        Outcome.DISK_EXCEEDED,
        Outcome.TASK_FAILED,  # the file size limit was first: dd was refused more than 20 MB in one file
    }
    record, _, _ = run(
        "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=big$i bs=1M count=8 2>/dev/null; done; sleep 30",
        disk=20 << 20, wall=40,
    )  # fmt: skip
    assert classify(record.result, disk_exceeded=record.disk_exceeded).outcome is Outcome.DISK_EXCEEDED


def test_a_failing_agent_is_a_failed_task_and_its_work_is_kept(run):
    record, _, frozen = run("echo half > half.txt; exit 9")
    assert classify(record.result).outcome is Outcome.TASK_FAILED
    assert [change.path for change in frozen.files_changed] == ["half.txt"]


def test_a_started_leaf_is_gone_at_its_deadline_with_nobody_watching(make_leaf, engine, home):
    leaf = make_leaf("trap '' TERM; sleep 600", wall=2)
    leaf.boot()
    leaf.write_brief()
    leaf._deadline = int(time.time()) + 3
    engine.remove(leaf._container)
    leaf._container = engine.create(leaf._spec())
    engine.start(leaf._container)
    limit = time.monotonic() + 40
    while engine.list({LABEL_BEAD: leaf.plan.bead}) and time.monotonic() < limit:
        time.sleep(0.2)
    assert engine.list({LABEL_BEAD: leaf.plan.bead}) == []


def test_calls_before_boot_and_after_dispose_are_refused(make_leaf):
    leaf = make_leaf("true")
    for call in (
        leaf.write_brief,
        leaf.run_task,
        lambda: leaf.freeze("x"),
        lambda: leaf.write_output({}),
        leaf.read_outbox,
    ):
        with pytest.raises(LeafNotBootedError):
            call()
    leaf.boot()
    assert leaf.dispose() is True
    assert leaf.dispose() is True
    with pytest.raises(LeafNotBootedError):
        leaf.write_brief()


def test_dispose_leaves_no_trace(make_leaf, engine, home, sample):
    with make_leaf("echo x > y") as leaf:
        leaf.boot()
        leaf.write_brief()
        brief = json.loads((leaf.folder / leaf.plan.name / ".hermes" / "briefs" / f"{leaf.plan.bead}.json").read_text())
        leaf.run_task()
    assert brief["bead"] == leaf.plan.bead
    assert list(home.leaves.iterdir()) == []
    assert not (sample / ".git" / "worktrees").exists()
    assert engine.list({LABEL_BEAD: leaf.plan.bead}) == []


def test_events_arrive_while_it_runs(make_leaf):
    with make_leaf("echo first; sleep 2; echo second") as leaf:
        leaf.boot()
        leaf.write_brief()
        leaf.run_task()
    output = [event for event in leaf.journal.events if event["type"] == "output"]
    kinds = [event["type"] for event in leaf.journal.events]
    assert [event["text"] for event in output] == ["first", "second"]
    assert output[1]["ts"] - output[0]["ts"] >= 1
    assert kinds[0] == "entry.started"
    assert kinds[-1] == "entry.finished"


def _snapshot(repo):
    """Everything of a user's repository that must stay as it is: working tree, index, config, hooks, stash, HEAD."""
    found = {}
    for folder, _, files in os.walk(repo):
        if "/.git/objects" in folder or "/.git/refs/school" in folder or folder.endswith("/.git/worktrees"):
            continue
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, repo)] = file.read()
    return found
