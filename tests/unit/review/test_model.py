from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from orchestrator.errors import ModelCallError
from orchestrator.review.model import GateModel, Message, Usage

MESSAGES = [Message("system", "s"), Message("user", "u")]
GOOD = {
    "model": "real/model",
    "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


class Gate:
    """A gate that gives prepared answers: (status, headers, body bytes or object), or "drop", "hang", "drip"."""

    def __init__(self, path, *answers):
        self.path = path
        self.answers = list(answers)
        self.requests = []
        self.closing = threading.Event()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen(8)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            if self.closing.is_set():
                connection.close()
                return
            with connection, connection.makefile("rb") as reader:
                self.answer(connection, reader)

    def answer(self, connection, reader):
        head = []
        while (line := reader.readline().strip()) != b"":
            head.append(line.decode())
        headers = dict(line.lower().split(": ", 1) for line in head[1:])
        body = reader.read(int(headers.get("content-length", 0)))
        self.requests.append((head[0], headers, json.loads(body)))
        answer = self.answers.pop(0)
        if answer == "drop":
            return
        if answer == "hang":
            reader.read()
            return
        if answer == "drip":
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while not self.closing.wait(0.05):
                    connection.sendall(b" ")
            except OSError:
                return
            return
        status, more, content = answer
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(raw)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in more.items()]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)

    def close(self):
        self.closing.set()
        with socket.socket(socket.AF_UNIX) as waker:
            waker.connect(str(self.path))
        self.thread.join(10)
        self.server.close()


@pytest.fixture
def gate(tmp_path):
    gates = []

    def make(*answers):
        gates.append(Gate(tmp_path / "gate.sock", *answers))
        return gates[-1]

    yield make
    for one in gates:
        one.close()


def complete(gate, *, seconds=20.0, pauses=None):
    pauses = [] if pauses is None else pauses
    client = GateModel(gate.path, sleep=pauses.append)
    return client.complete("auto/review", MESSAGES, bead="b-1", deadline=time.monotonic() + seconds)


def test_a_call_is_a_plain_completion_under_its_beads_name(gate):
    server = gate((200, {}, GOOD))
    completion = complete(server)
    assert (completion.text, completion.model) == ("hello", "real/model")
    assert completion.usage == Usage(1, 7, 2)
    line, headers, body = server.requests[0]
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert (headers["x-school-bead"], headers["accept"]) == ("b-1", "application/json")
    assert "authorization" not in headers
    assert body == {
        "model": "auto/review",
        "stream": False,
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    }


def test_busy_broken_and_lost_calls_are_tried_again_with_the_pause_that_was_asked_for(gate):
    pauses: list[float] = []
    server = gate((429, {"Retry-After": "3"}, {}), (503, {}, b"<html>"), "drop", (200, {}, GOOD))
    assert complete(server, pauses=pauses).text == "hello"
    assert pauses[0] == 3.0
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
def test_a_refusal_is_final_and_carries_the_gates_code(gate, status):
    body = {"error": {"type": "school_gate", "code": "budget_exhausted", "message": "no\x1b[2J more"}}
    server = gate((status, {}, body))
    with pytest.raises(ModelCallError, match="budget_exhausted") as caught:
        complete(server)
    assert (caught.value.status, caught.value.code) == (status, "budget_exhausted")
    assert "\x1b" not in caught.value.message
    assert len(server.requests) == 1


def test_an_upstream_that_keeps_failing_is_given_up_before_the_deadline(gate):
    server = gate(*[(500, {}, {"error": {"message": "broken"}})] * 8)
    with pytest.raises(ModelCallError, match="broken"):
        complete(server)
    assert len(server.requests) == 5


def test_a_gate_that_is_being_restarted_is_waited_for(gate):
    server = gate(*["drop"] * 7, (200, {}, GOOD))
    assert complete(server, seconds=600).text == "hello"


def test_a_pause_that_ends_after_the_deadline_is_not_begun(gate):
    server = gate((429, {"Retry-After": "3600"}, {"error": {"message": "slow down"}}))
    with pytest.raises(ModelCallError, match="slow down"):
        complete(server)


@pytest.mark.parametrize("behaviour", ["hang", "drip"])
def test_the_deadline_holds_against_silence_and_against_a_slow_drip(gate, behaviour):
    with pytest.raises(ModelCallError, match="did not answer within"):
        complete(gate(behaviour), seconds=0.4)


def test_no_gate_is_an_error_with_a_next_step(tmp_path):
    client = GateModel(tmp_path / "none.sock")
    with pytest.raises(ModelCallError, match="gate did not answer") as caught:
        client.complete("m", MESSAGES, bead="b", deadline=time.monotonic() + 0.3)
    assert "school status" in caught.value.next_step


def test_a_socket_beyond_the_kernels_path_limit_is_reached(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    server = Gate("gate.sock", (200, {}, GOOD))
    try:
        client = GateModel(deep / "gate.sock")
        assert client.complete("m", MESSAGES, bead="b", deadline=time.monotonic() + 20).text == "hello"
    finally:
        server.close()


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        {},
        {"choices": []},
        {"choices": [{"message": {"content": None}}]},
        {"choices": [{"message": None}]},
        {"choices": ["x"]},
        {"choices": [{"message": {"content": "half"}, "finish_reason": "length"}]},
    ],
)
def test_what_is_no_whole_completion_is_an_error(gate, body):
    with pytest.raises(ModelCallError):
        complete(gate((200, {}, body)))


def test_text_in_parts_is_joined_and_odd_usage_counts_nothing(gate):
    parts = [{"type": "text", "text": "he"}, {"type": "other"}, {"type": "text", "text": "llo"}]
    body = {"choices": [{"message": {"content": parts}}], "usage": {"prompt_tokens": -1, "completion_tokens": "9"}}
    completion = complete(gate((200, {}, body)))
    assert (completion.text, completion.usage) == ("hello", Usage(1, 0, 0))
