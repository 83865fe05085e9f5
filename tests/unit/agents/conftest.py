"""What the agents' tests share: a leaf's folders on the host, a scripted model, and events as they are written."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from orchestrator.agents.events import Emitter
from orchestrator.agents.places import Places

_spec = importlib.util.spec_from_file_location("scripted_model", Path(__file__).with_name("scripted_model.py"))
scripted_model = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scripted_model)

BEAD = "coder-general-0000abcd"


class Slot:
    """The folders of one leaf."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("workspace", "inbox", "outbox", "home", "gate"):
            (root / name).mkdir()
        self.workspace = root / "workspace"
        self.outbox = root / "outbox"
        self.inbox = root / "inbox"
        self.gate = root / "gate" / "gate.sock"
        self.places = Places(
            workspace=str(self.workspace),
            inbox=str(self.inbox),
            outbox=str(self.outbox),
            home=str(root / "home"),
            gate_socket=str(self.gate),
            relay_port=0,
            hermes=str(root / "no-hermes"),
        )
        self.brief()

    def brief(self, **fields):
        brief = {
            "v": 1,
            "bead": BEAD,
            "role": "coder",
            "domain": "general",
            "difficulty": "easy",
            "task": "Write hello.txt",
            "guardrails": ["Change nothing else"],
            "expected_output_format": "a diff",
            "verification": "make test",
            "completion_signal": "hello.txt exists",
            "model": "rehearsal",
            "limits": {"wall_s": 30, "turns": 10},
            **fields,
        }
        (self.inbox / "brief.json").write_text(json.dumps(brief))

    def outcome(self):
        return json.loads((self.outbox / "outcome.json").read_text())


@pytest.fixture
def slot():
    root = Path(tempfile.mkdtemp(prefix="slot-", dir="/tmp"))  # a Unix socket's path must be short
    yield Slot(root)
    shutil.rmtree(root)


@pytest.fixture
def model(slot):
    """Start a scripted model behind the slot's gate socket: ``model(reply, reply, ...)``."""
    started = []

    def start(*replies):
        started.append(scripted_model.ScriptedModel(slot.gate, list(replies)))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def says():
    return scripted_model.says


@pytest.fixture
def fails():
    return scripted_model.fails


@pytest.fixture
def hangs():
    return scripted_model.Hangs


class Recorded:
    """An emitter into a file, and what it wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.emit = Emitter(self.descriptor)

    @property
    def events(self):
        return [json.loads(line) for line in self._path.read_text().splitlines() if line]

    def of(self, kind):
        return [event for event in self.events if event["type"] == kind]

    @property
    def result(self):
        (result,) = self.of("result")
        return result


@pytest.fixture
def recorded(tmp_path):
    one = Recorded(tmp_path / "events")
    yield one
    os.close(one.descriptor)
