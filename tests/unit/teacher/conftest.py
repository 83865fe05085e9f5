from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.bookbag import BookbagSignal, Dirs, new_bookbag, read_bookbag, write_bookbag
from orchestrator.review.model import GateModel
from orchestrator.review.reviewer import Reviewer
from orchestrator.teacher.config import TeacherConfig
from orchestrator.teacher.loop import TeacherLoop

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "b" * 40
KEYS = {"cto": b"c" * 32, "coo": b"o" * 32}
REVIEW = {
    "verdict": "PASS",
    "confidence": 0.9,
    "summary": "Fine.",
    "ac_met": [],
    "findings": [
        {
            "section": "a.py:1",
            "issue_class": "naming",
            "severity": "LOW",
            "citation": "x",
            "description": "A short name.",
            "suggestion": "A longer one.",
        }
    ],
}


def until(condition, seconds=60.0):
    """Wait, generously, until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


class ModelServer:
    """A chat model behind a Unix socket: answers with ``reply`` (text, status or callable) and remembers the beads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reply: object = json.dumps(REVIEW)
        self.asked: list[str] = []
        self.systems: list[str] = []
        self.gate = threading.Event()  # closed: answers wait
        self.gate.set()
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        self._main = threading.Thread(target=self._serve)
        self._main.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            if self._closing:
                connection.close()
                return
            thread = threading.Thread(target=self._talk, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += reader.readline()
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            body = json.loads(reader.read(length))
            bead = re.search(rb"(?i)x-school-bead: (\S+)", head)[1].decode()
            with self._lock:
                self.asked.append(bead)
                self.systems.append(body["messages"][0]["content"])
                self._now += 1
                self.most_at_once = max(self.most_at_once, self._now)
            self.gate.wait(60)
            with self._lock:
                self._now -= 1
            reply = self.reply(bead) if callable(self.reply) else self.reply
            status = reply if isinstance(reply, int) else 200
            raw = json.dumps({"choices": [{"message": {"content": reply}}], "usage": {"prompt_tokens": 5}}).encode()
            try:
                connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
            except OSError:  # the teacher has given up
                return

    def close(self) -> None:
        self.gate.set()
        self._closing = True
        with socket.socket(socket.AF_UNIX) as waker:
            waker.connect(str(self.path))
        self._main.join(30)
        for thread in self._threads:
            thread.join(30)
        self._server.close()


class School:
    """Folders, beads and teachers of one test."""

    def __init__(self, root: Path, server: ModelServer) -> None:
        self.root = root
        self.server = server
        self.dirs = Dirs(root / "bookbag", root / "signals", root / "locks")
        self.started: list[tuple[TeacherLoop, threading.Thread]] = []

    def bead(
        self, name: str = "coder-general-1", *, signal: bool = True, evidence: bool = True, **changes: object
    ) -> str:
        fields = {"head_sha": HEAD, "base_sha": "a" * 40, "output": "done", "difficulty": "easy", "repo": "/r"}
        write_bookbag(name, new_bookbag(name, fields | changes), dirs=self.dirs)
        if evidence:
            self.evidence(name)
        if signal:
            BookbagSignal(name, dirs=self.dirs).ready()
        return name

    def evidence(self, bead: str) -> Path:
        folder = self.root / "evidence" / bead
        folder.mkdir(parents=True, exist_ok=True)
        diff = b"diff --git a/a.py b/a.py\n+x = 1\n"
        (folder / "diff.patch").write_bytes(diff)
        index = {
            "v": 1,
            "bead": bead,
            "base_sha": "a" * 40,
            "head_sha": HEAD,
            "role": "coder",
            "difficulty": "easy",
            "task": "set x",
            "parts": [{"name": "diff.patch", "sha256": hashlib.sha256(diff).hexdigest(), "truncated": False}],
        }
        (folder / "evidence.json").write_text(json.dumps(index))
        return folder

    def config(self, teacher: str = "cto", **changes: object) -> TeacherConfig:
        sessions = self.root / "sessions" / teacher
        defaults: dict = {"poll_interval": 0.2, "review_timeout": 30.0, "backoff": 0.02}
        return TeacherConfig(
            teacher=teacher,
            model="auto/review",
            dirs=self.dirs,
            evidence=self.root / "evidence",
            sessions=sessions,
            gate_socket=str(self.server.path),
            **(defaults | changes),
        )

    def loop(self, teacher: str = "cto", **changes: object) -> TeacherLoop:
        config = self.config(teacher, **changes)
        reviewer = Reviewer(teacher, GateModel(config.gate_socket), config.model, timeout=config.review_timeout)
        return TeacherLoop(config, reviewer, KEYS[teacher])

    def start(self, teacher: str = "cto", **changes: object) -> TeacherLoop:
        loop = self.loop(teacher, **changes)
        thread = threading.Thread(target=loop.run)
        thread.start()
        self.started.append((loop, thread))
        return loop

    def stop(self) -> None:
        for loop, _ in self.started:
            loop.stop()
        for _, thread in self.started:
            thread.join(60)
            assert not thread.is_alive()
        self.started.clear()

    def bag(self, bead: str) -> dict:
        bag = read_bookbag(bead, dirs=self.dirs)
        assert bag is not None
        return bag

    def flagged(self, bead: str) -> bool:
        return BookbagSignal(bead, dirs=self.dirs).check()


@pytest.fixture
def server(tmp_path):
    server = ModelServer(tmp_path / "gate.sock")
    yield server
    server.close()


@pytest.fixture
def school(tmp_path, server):
    school = School(tmp_path, server)
    yield school
    server.gate.set()
    school.stop()


@pytest.fixture
def wait():
    return until


@pytest.fixture
def keys():
    return KEYS


@pytest.fixture
def review_json():
    return json.loads(json.dumps(REVIEW))
