"""What an agent may say, and what PID 1 makes of it."""

from __future__ import annotations

import json
import os
import threading

import pytest

from orchestrator.agents.events import Emitter
from orchestrator.agents.intake import MAX_LINE, Intake
from orchestrator.agents.sink import MAX_TEXT, RESERVED, Sink, encode, open_events_file


class Wired:
    """An intake between three pipes."""

    def __init__(self, max_total: int) -> None:
        self.events_in, self.events = os.pipe()
        self.output_in, self.output = os.pipe()
        self.stdout_out, self.stdout = os.pipe()
        os.set_blocking(self.stdout_out, False)
        self.sink = Sink(self.stdout, None, max_total=max_total)
        self.intake = Intake(self.events_in, self.output_in, self.sink)

    def say(self, *lines):
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode()
            os.write(self.events, data + b"\n")
        self.intake.drain()
        return self.heard()

    def heard(self):
        data = b""
        while True:
            self.sink.push()
            try:
                data += os.read(self.stdout_out, 1 << 20)
            except BlockingIOError:
                break
        return [json.loads(line) for line in data.splitlines()]

    def close(self):
        self.intake.close()
        for descriptor in (self.events, self.output, self.stdout, self.stdout_out):
            os.close(descriptor)


@pytest.fixture
def wire():
    made = []

    def make(max_total=16 << 20):
        made.append(Wired(max_total))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", ["entry.started", "entry.finished", "agent.finished", "nonsense", None, 1, []])
def test_an_agent_cannot_speak_for_pid_1(wire, kind):
    wired = wire()
    assert wired.say({"type": kind, "exit_code": 0}) == []
    assert wired.intake.refused == 1


@pytest.mark.parametrize("line", [b"not json", b"[]", b"null", b"[" * 100_000, b'{"type": "turn", "n": NaN}', b"\xff"])
def test_nonsense_is_refused(wire, line):
    wired = wire()
    for start in range(0, len(line), 4096):
        os.write(wired.events, line[start : start + 4096])
        wired.intake.drain()
    assert wired.say(b"") == []
    assert wired.intake.refused >= 1


def test_version_and_time_are_pid_1s(wire):
    (event,) = wire().say({"type": "message", "text": "hi", "v": 99, "ts": 0, "nested": {"a": 1}})
    assert event["v"] == 1
    assert event["ts"] > 1_600_000_000
    assert "nested" not in event


def test_strings_are_clipped(wire):
    (event,) = wire().say({"type": "tool.call", "preview": "p" * 1000, "name": "n" * 50_000})
    assert len(event["preview"]) == 300
    assert len(event["name"]) == MAX_TEXT


def test_control_characters_stay_escaped():
    line = encode("message", {"text": "a\nb\x1b[31m\u2028"})
    assert line.count(b"\n") == 1
    assert b"\x1b" not in line


def test_the_result_is_kept_for_pid_1(wire):
    wired = wire()
    assert wired.say({"type": "result", "status": "completed", "output": "x"}) == []
    assert wired.intake.result == {"status": "completed", "output": "x"}


def test_usage_and_turns_are_followed(wire):
    wired = wire()
    wired.say({"type": "turn", "n": 4}, {"type": "usage", "calls": 4, "prompt_tokens": 7, "odd": "x"})
    assert (wired.intake.turns, wired.intake.usage) == (4, {"calls": 4, "prompt_tokens": 7})


def test_stray_output_becomes_events(wire):
    wired = wire()
    os.write(wired.output, b"Traceback\n\xff\n\n")
    assert [event["text"] for event in wired.say(b"{}")] == ["Traceback", "\ufffd"]


def test_a_line_without_end_does_not_fill_the_memory(wire):
    wired = wire()
    for _ in range(MAX_LINE // 32768 + 40):
        os.write(wired.events, b"x" * 32768)
        wired.intake.take()
    assert [event["text"] for event in wired.say(b"", {"type": "message", "text": "still here"})] == ["still here"]


def test_the_size_limit_drops_and_counts_but_keeps_room_for_the_end(wire):
    wired = wire(max_total=RESERVED + 2000)
    for number in range(50):
        wired.say({"type": "message", "text": f"{number} " + "x" * 100})
    assert wired.sink.dropped > 20
    wired.sink.write(encode("entry.finished", {"exit_code": 0}), essential=True)
    assert [event["type"] for event in wired.heard()] == ["entry.finished"]


def test_a_reader_that_stands_still_holds_nothing_up(wire):
    wired = wire()
    line = encode("message", {"text": "x" * 10_000})
    while not wired.sink.full:
        wired.sink.write(line)
    wired.sink.flush(seconds=0.05)
    assert wired.sink.waiting


def test_the_events_file_is_never_opened_through_a_link(tmp_path):
    (tmp_path / "events.jsonl").symlink_to(tmp_path / "elsewhere")
    assert open_events_file(str(tmp_path / "events.jsonl")) is None
    assert not (tmp_path / "elsewhere").exists()


def test_lines_of_several_threads_never_mix(wire):
    """Hermes calls back from its tools' threads; a line longer than the pipe is written in pieces."""
    wired = wire()
    emit = Emitter(wired.events)
    threads = [threading.Thread(target=emit.message, args=(letter * 15_000,)) for letter in "abcdefgh" * 3]
    for thread in threads:
        thread.start()
    heard = []
    while any(thread.is_alive() for thread in threads):
        wired.intake.take()
        heard += wired.heard()
    wired.intake.drain()
    heard += wired.heard()
    assert wired.intake.refused == 0
    assert sorted(event["text"] for event in heard) == sorted(letter * 15_000 for letter in "abcdefgh" * 3)


def test_a_line_that_a_signal_cut_does_not_take_the_result_along(wire):
    wired = wire()
    os.write(wired.events, b'{"type": "message", "te')
    Emitter(wired.events).finish("interrupted", "SIGTERM", "so far")
    wired.intake.drain()
    assert wired.intake.result["output"] == "so far"
    assert wired.intake.refused == 1
