"""A leaf's container around the agents alone: entry as PID 1, a scripted model behind the gate's socket."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import docker
import pytest
from docker.types import Mount

from orchestrator.engine.base import LABEL_HOME
from orchestrator.sandbox.hermes_layer import add_hermes
from orchestrator.sandbox.spec import ENTRY
from orchestrator.settings import load_settings

_support = Path(__file__).parents[2] / "unit" / "agents" / "scripted_model.py"
_spec = importlib.util.spec_from_file_location("scripted_model", _support)
scripted_model = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scripted_model)

BEAD = "coder-general-0000abcd"


@pytest.fixture(scope="session")
def hermes_image(engine, image):
    """The plain student image with the Hermes layer on it."""
    return add_hermes(engine, load_settings(), image("student"), print)


class Leaf:
    """One container and its folders."""

    def __init__(self, root: Path, client, home) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.outbox = root / "outbox"
        self.container = None
        self._client = client
        self._home = home
        self._model = None
        for name in ("workspace", "inbox", "outbox", "gate"):
            (root / name).mkdir()
            os.chown(root / name, home.uid, home.gid)

    def model(self, *replies):
        self._model = scripted_model.ScriptedModel(self.root / "gate" / "gate.sock", list(replies))
        return self._model

    def start(self, agent, image, *, deadline=120.0, memory="256m", **brief):
        task = {"v": 1, "bead": BEAD, "role": "coder", "task": "Write hello.txt", "model": "rehearsal"}
        limits = {"limits": {"wall_s": 100, "turns": 10}}
        (self.root / "inbox" / "brief.json").write_text(json.dumps({**task, **limits, **brief}))
        (self.root / "inbox" / "SOUL.md").write_text("You are patient.")

        def bind(name, target, *, read_only):
            return Mount(target, str(self.root / name), type="bind", read_only=read_only)

        self.container = self._client.containers.create(
            image,
            list(ENTRY),
            environment={
                "HOME": "/home/student",
                "SCHOOL_AGENT": agent,
                "SCHOOL_BEAD": BEAD,
                "SCHOOL_DEADLINE": str(time.time() + deadline),
            },
            labels={LABEL_HOME: self._home.id},
            user=f"{self._home.uid}:{self._home.gid}",
            working_dir="/workspace",
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            pids_limit=256,
            mem_limit=memory,
            memswap_limit=memory,
            tmpfs={"/tmp": "exec,size=64m", "/home/student": f"exec,size=64m,uid={self._home.uid}"},
            mounts=[
                bind("workspace", "/workspace", read_only=False),
                bind("inbox", "/school/inbox", read_only=True),
                bind("outbox", "/school/outbox", read_only=False),
                bind("gate", "/school/gate", read_only=True),
            ],
        )
        self.container.start()
        return self

    def finish(self):
        """Exit code and events."""
        code = self.container.wait(timeout=180)["StatusCode"]
        lines = self.container.logs(stdout=True, stderr=False).splitlines()
        return code, [json.loads(line) for line in lines]

    def until(self, condition, seconds=60):
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, self.container.logs().decode()
            time.sleep(0.05)

    def outcome(self):
        return json.loads((self.outbox / "outcome.json").read_text())

    def close(self):
        if self.container is not None:
            self.container.remove(force=True)
        if self._model is not None:
            self._model.close()


@pytest.fixture(scope="session")
def client(engine):
    made = docker.from_env()
    yield made
    made.close()


@pytest.fixture
def leaf(client, home):
    root = Path(tempfile.mkdtemp(prefix="leaf-", dir="/tmp"))  # a Unix socket's path must be short
    one = Leaf(root, client, home)
    yield one
    one.close()
    shutil.rmtree(root)


@pytest.fixture
def says():
    return scripted_model.says


@pytest.fixture
def fails():
    return scripted_model.fails
