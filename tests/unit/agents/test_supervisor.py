"""The supervisor with real processes on this host; what only PID 1 can do is in tests/integration/agents."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUNNER = Path(__file__).with_name("run_supervisor.py")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start(slot):
    children = []

    def go(agent, *, deadline=60.0, **brief):
        slot.brief(**brief)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHOOL_BEAD": "coder-general-0000abcd",
            "SCHOOL_DEADLINE": str(time.time() + deadline),
        }
        child = subprocess.Popen(
            [sys.executable, str(RUNNER), agent, str(slot.root), str(free_port())],
            stdout=subprocess.PIPE,
            env=environment,
        )
        children.append(child)
        return child

    yield go
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


def finish(child):
    data = child.stdout.read()
    return child.wait(timeout=60), [json.loads(line) for line in data.splitlines()]


def test_light_from_start_to_end(slot, model, says, start):
    model(says("", ("write_file", {"path": "hello.txt", "content": "x"})), says("", ("done", {"summary": "Did it."})))
    code, events = finish(start("light"))
    assert code == 0
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["entry.started", "agent.started"]
    assert kinds[-2:] == ["agent.finished", "entry.finished"]
    outcome = slot.outcome()
    assert (outcome["status"], outcome["output"], outcome["turns"]) == ("completed", "Did it.", 2)
    assert outcome["usage"] == {"calls": 2, "prompt_tokens": 20, "completion_tokens": 10}
    assert json.loads((slot.outbox / "bookbag.json").read_text())["output"] == "Did it."
    assert (slot.outbox / "events.jsonl").read_text().splitlines() == [
        json.dumps(e) if i else '{"v":1,"ts":1.0,"type":"entry.started","agent":"light"}' for i, e in enumerate(events)
    ]


def test_a_command_gets_its_environment_and_its_output_is_kept(slot, model, says, start):
    model(says("from the model"))
    ask = (
        'printf "%s\\n" "$OPENAI_MODEL" "$OPENAI_API_KEY" "$ANTHROPIC_API_KEY"; echo oops >&2; test -f "$SCHOOL_BRIEF"; '
        "python3 -c \"import os,urllib.request as u; print(u.urlopen(u.Request(os.environ['OPENAI_BASE_URL']"
        " + '/chat/completions', data=b'{}')).read().decode())\""
    )
    code, events = finish(start("command", command=ask))
    assert code == 0
    output = slot.outcome()["output"]
    assert output.startswith("rehearsal\nschool-no-key-needed\nschool-no-key-needed\n")
    assert "from the model" in output
    assert {"stderr", "stdout"} == {event["stream"] for event in events if event["type"] == "output"}


@pytest.mark.parametrize(
    ("command", "reason", "number"),
    [("exit 7", "code 7", 7), ("kill -9 $$", "signal 9", 137), ("", "needs", None)],
)
def test_a_command_that_fails_is_a_failure(slot, start, command, reason, number):
    code, events = finish(start("command", command=command))
    assert code == 3
    assert reason in slot.outcome()["reason"]
    assert events[-2].get("command_exit_code") == number


def test_a_task_longer_than_a_variable_may_be_is_cut_and_says_where_the_rest_is(slot, start):
    code, _ = finish(start("command", command='printf %s "$SCHOOL_TASK" | tail -n 1', task="\u00e9" * 200_000))
    assert code == 0
    assert "$SCHOOL_BRIEF" in slot.outcome()["output"]


def test_a_command_that_cannot_be_started_is_a_failure(slot, start):
    code, _ = finish(start("command", command="true # " + "x" * 200_000))
    assert code == 3
    assert "can't be started" in slot.outcome()["reason"]


def test_a_sigterm_reaches_the_command_and_is_an_interruption(slot, start):
    child = start("command", command="trap 'echo bye; exit 1' TERM; echo ready; sleep 60 & wait")
    while b"ready" not in child.stdout.readline():
        pass
    child.send_signal(signal.SIGTERM)
    code, events = finish(child)
    assert code == 143
    assert "bye" in [event.get("text") for event in events]
    assert slot.outcome()["status"] == "interrupted"


def test_a_command_that_ignores_sigterm_is_killed_at_the_wall(slot, start):
    code, _ = finish(start("command", command="trap '' TERM; while :; do sleep 1; done", limits={"wall_s": 0.5}))
    assert code == 4
    assert slot.outcome()["status"] == "timed_out"


def test_the_principals_deadline_holds_whatever_the_brief_says(slot, start):
    code, _ = finish(start("command", command="sleep 60", deadline=2, limits={"wall_s": 3600}))
    assert code == 4
    assert slot.outcome()["ended"] - slot.outcome()["started"] < 30


def test_light_keeps_what_it_had_when_it_is_interrupted(slot, model, says, start):
    model(says("Half way.", ("bash", {"command": "echo begun > mark; sleep 60"})))
    child = start("light")
    while not (slot.workspace / "mark").exists():
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    code, _ = finish(child)
    assert code == 143
    assert (slot.outcome()["status"], slot.outcome()["output"]) == ("interrupted", "Half way.")


@pytest.mark.parametrize(("agent", "said"), [("hermes", "--agent light"), ("robot", "did not start")])
def test_an_agent_that_is_not_there_is_a_failure_that_says_so(slot, start, agent, said):
    code, _ = finish(start(agent))
    assert code == 3
    assert said in slot.outcome()["reason"]


def test_without_a_brief_it_ends_and_says_why(slot, start):
    code, events = finish(start("light", task=None))
    assert code == 3
    assert "brief lacks task" in slot.outcome()["reason"]
    assert events[-1] == {**events[-1], "type": "entry.finished", "exit_code": 3}


def test_much_output_arrives_whole_or_is_counted(slot, start):
    code, events = finish(start("command", command="yes 0123456789012345678901234567890123456789 | head -n 300000"))
    assert code == 0
    dropped = [event["text"] for event in events if event["type"] == "warning"]
    shown = sum(event["type"] == "output" for event in events)
    assert shown + int(dropped[0].split()[0]) == 300_000
    assert events[-1]["type"] == "entry.finished"
