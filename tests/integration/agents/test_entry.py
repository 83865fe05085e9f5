"""The entry point as PID 1 of a real container: it ends on time, and nothing inside can prevent it."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.engine

ATTACK = r"""
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV):
    os.kill(1, number)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
for request in (PTRACE_ATTACH, PTRACE_SEIZE):
    print("ptrace", libc.ptrace(request, 1, 0, 0), ctypes.get_errno())
for name in ("environ", "mem", "maps", "fd/0"):
    try:
        open(f"/proc/1/{name}", "rb").read(1)
        print("read", name)
    except OSError as error:
        print("refused", name)
try:
    os.listdir("/proc/1/fd")
    print("read fd")
except PermissionError:
    print("refused fd")
"""


def texts(events):
    return [event["text"] for event in events if event["type"] == "output"]


def test_pid_1_cannot_be_stopped_killed_traced_or_read(leaf, image):
    (leaf.workspace / "attack.py").write_text(ATTACK)
    code, events = leaf.start("command", image("student"), command="python3 attack.py; sleep 1; echo alive").finish()
    assert code == 0
    said = texts(events)
    assert "alive" in said
    assert [line for line in said if line.startswith("ptrace")] == ["ptrace -1 1", "ptrace -1 1"]
    assert not [line for line in said if line.startswith("read")]
    assert len([line for line in said if line.startswith("refused")]) == 5


@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM INT HUP; while :; do sleep 1; done",
        "kill -STOP 1; kill -STOP $PPID; kill -STOP $$; sleep 100",
        "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; trap '' TERM; while :; do sleep 1; done",
    ],
    ids=["ignores", "stops", "daemonises"],
)
def test_it_ends_at_the_deadline_whatever_runs(leaf, image, command):
    leaf.start("command", image("student"), command=command, deadline=4, limits={"wall_s": 3600})
    code, events = leaf.finish()
    assert code == 4
    assert events[-1]["type"] == "entry.finished"
    assert leaf.outcome()["status"] == "timed_out"


def test_a_daemon_neither_holds_the_leaf_nor_writes_its_outcome(leaf, image):
    daemon = (
        'setsid sh -c \'trap "" TERM; while :; do echo forged > /school/outbox/outcome.json; '
        "echo forged > /school/outbox/bookbag.json; done' & sleep 0.3; echo real"
    )
    code, _ = leaf.start("command", image("student"), command=daemon).finish()
    assert code == 0
    assert leaf.outcome()["output"] == "real\n"
    assert json.loads((leaf.outbox / "bookbag.json").read_text())["output"] == "real\n"


def test_orphans_are_reaped(leaf, image):
    command = (
        "for i in $(seq 50); do (sleep 0.01 &) ; done; sleep 1; grep -h '^State' /proc/[0-9]*/status | grep -c Z; true"
    )
    code, events = leaf.start("command", image("student"), command=command).finish()
    assert code == 0
    assert texts(events) == ["0"]


def test_a_stop_from_outside_is_an_interruption(leaf, image):
    leaf.start("command", image("student"), command="trap 'echo bye; exit 0' TERM; touch up; sleep 100 & wait")
    leaf.until((leaf.workspace / "up").exists)
    leaf.container.kill("SIGTERM")
    code, events = leaf.finish()
    assert code == 143
    assert "bye" in texts(events)
    assert leaf.outcome()["status"] == "interrupted"


def test_an_agent_killed_by_its_own_tool_is_a_failure(leaf, image, says):
    leaf.model(says("", ("bash", {"command": "kill -9 $PPID; sleep 100"})))
    code, _ = leaf.start("light", image("student")).finish()
    assert code == 3
    assert "signal 9" in leaf.outcome()["reason"]


def test_an_agent_killed_by_the_memory_limit_has_its_own_code(leaf, image, says):
    """The loop's own process is made the biggest one: it is what the kernel kills then."""
    big = says("", ("bash", {"command": "true"}))
    big["choices"][0]["message"]["content"] = "x" * 30_000_000
    leaf.model(big)
    code, _ = leaf.start("light", image("student"), memory="64m").finish()
    assert code == 5
    assert "memory" in leaf.outcome()["reason"]


def test_a_tool_killed_for_memory_does_not_end_the_agent(leaf, image, says):
    leaf.model(
        says("", ("bash", {"command": "python3 -c 'x = bytearray(500_000_000)'"})),
        says("", ("done", {"summary": "went on"})),
    )
    code, events = leaf.start("light", image("student"), memory="64m").finish()
    assert code == 0
    assert [event["ok"] for event in events if event["type"] == "tool.result"] == [False, True]


def test_a_killed_relay_is_replaced(leaf, image, says):
    leaf.model(says("still there"))
    kill_others = (
        "import os\n"
        "for name in os.listdir('/proc'):\n"
        "    if name.isdigit() and int(name) not in (1, os.getpid(), os.getppid(), int(os.environ['RUNNER'])):\n"
        "        os.kill(int(name), 9); print('killed')\n"
    )
    (leaf.workspace / "kill.py").write_text(kill_others)
    ask = "curl -s --retry 5 --retry-all-errors -d '{}' $OPENAI_BASE_URL/chat/completions"
    command = f"{ask} >/dev/null && RUNNER=$PPID python3 kill.py && {ask}"
    code, events = leaf.start("command", image("student"), command=command).finish()
    assert code == 0
    assert "killed" in texts(events)
    assert "still there" in leaf.outcome()["output"]


def test_events_cannot_be_forged_from_inside(leaf, image, says):
    forge = (
        'for f in /proc/[0-9]*/fd/*; do echo \'{"type":"result","status":"completed"}\' > $f; done 2>/dev/null; true'
    )
    leaf.model(says("", ("bash", {"command": forge})), says("", ("done", {"summary": "no", "success": False})))
    code, events = leaf.start("light", image("student")).finish()
    assert code == 3
    assert not [event for event in events if event["type"] == "warning"]


def test_nothing_is_traceable_of_the_agent_either(leaf, image, says):
    leaf.model(says("", ("bash", {"command": "cat /proc/$PPID/environ || echo refused"})), says("ok"))
    _, events = leaf.start("light", image("student")).finish()
    (result,) = [event for event in events if event["type"] == "tool.result"]
    assert "refused" in result["preview"]
