"""Two teachers as they really run: the service image, no network, and a stub in the place of the gate."""

from __future__ import annotations

import hashlib
import json
import os
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from orchestrator.bookbag import BookbagSignal, Dirs, new_bookbag, read_bookbag, write_bookbag

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "b" * 40
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


class StubGate(socketserver.ThreadingUnixStreamServer):
    """Answers each completion with one review, as long as ``open`` is set; keeps when and for whom it was asked."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        folder = os.open(
            path.parent, os.O_PATH | os.O_DIRECTORY
        )  # the path itself may be longer than a socket's may be
        try:
            super().__init__(f"/proc/self/fd/{folder}/{path.name}", _Handler)
        finally:
            os.close(folder)
        self.asked: list[tuple[float, str, str]] = []  # time, bead, first line of the system prompt
        self.open = threading.Event()
        self.open.set()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self.open.set()
        self.shutdown()
        self._thread.join(30)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: StubGate

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = body["messages"][0]["content"].split("\n")[0]
        self.server.asked.append((time.monotonic(), self.headers["X-School-Bead"], first))
        self.server.open.wait(120)
        raw = json.dumps({"choices": [{"message": {"content": json.dumps(REVIEW)}}]}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        except OSError:  # the teacher was killed
            self.close_connection = True

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


class TeacherSchool:
    """One home with its teachers' containers."""

    def __init__(self, engine, home, images) -> None:
        from orchestrator.sandbox.parts import PartsPlan
        from orchestrator.settings import load_settings

        self.engine = engine
        self.home = home
        self.dirs = Dirs(home.bookbags, home.signals, home.locks)
        self.plan = PartsPlan(home, load_settings(school_home=home.root, default_poll_interval=1.0), images)
        self.plan.prepare()
        self.gates = {teacher: self._gate(teacher) for teacher in ("cto", "coo")}

    def _gate(self, teacher: str) -> StubGate:
        path = self.home.gate / "sockets" / f"teacher-{teacher}" / "gate.sock"
        gate = StubGate(path)
        self.home.hand_over(path)
        return gate

    def start(self, teacher: str) -> str:
        container = self.engine.create(self.plan.teacher(teacher).spec)
        self.engine.start(container)
        return container

    def healthy(self, container: str) -> bool:
        code, _ = self.engine.exec(container, ["python3", "-m", "orchestrator.teacher", "health"])
        return code == 0

    def bead(self, name: str, *, signal: bool = True) -> str:
        folder = self.home.evidence / name
        folder.mkdir(mode=0o700)
        diff = b"diff --git a/a.py b/a.py\n+x = 1\n"
        index = {
            "v": 1,
            "bead": name,
            "base_sha": "a" * 40,
            "head_sha": HEAD,
            "role": "coder",
            "difficulty": "easy",
            "task": "set x",
            "parts": [{"name": "diff.patch", "sha256": hashlib.sha256(diff).hexdigest(), "truncated": False}],
        }
        (folder / "diff.patch").write_bytes(diff)
        (folder / "evidence.json").write_text(json.dumps(index))
        for path in (folder, *folder.iterdir()):
            self.home.hand_over(path)
        fields = {"head_sha": HEAD, "base_sha": "a" * 40, "output": "done", "difficulty": "easy"}
        write_bookbag(name, new_bookbag(name, fields), dirs=self.dirs)
        if signal:
            BookbagSignal(name, dirs=self.dirs).ready()
        return name

    def bag(self, bead: str) -> dict:
        bag = read_bookbag(bead, dirs=self.dirs)
        assert bag is not None
        return bag

    def key(self, teacher: str) -> bytes:
        from orchestrator.review.record import read_seal_key

        return read_seal_key(self.home.keys / f"seal-{teacher}.key")


@pytest.fixture
def teachers(engine, home, image):
    school = TeacherSchool(engine, home, {"service": image("service")})
    yield school
    from orchestrator.engine.base import LABEL_HOME

    for container in engine.list({LABEL_HOME: home.id}):
        engine.remove(container.id)
    for gate in school.gates.values():
        gate.close()


@pytest.fixture
def wait():
    def until(condition, seconds=120.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.02)

    return until
