"""A leaf driven without gateway and principal: what the sandbox itself promises."""

from __future__ import annotations

import contextlib
import threading

import pytest

from orchestrator.git.repository import open_repository
from orchestrator.leaf.brief import Brief
from orchestrator.leaf.journal import Silent
from orchestrator.leaf.student import LeafPlan, StudentLeaf
from orchestrator.sandbox.spec import Limits


class Recorder(Silent):
    """A journal that keeps steps, events and notes."""

    def __init__(self):
        self.steps, self.events, self.notes = [], [], []

    @contextlib.contextmanager
    def step(self, name, /, **data):
        self.steps.append(name)
        yield

    def agent_event(self, event):
        self.events.append(event)

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def make_leaf(engine, home, image, sample):
    """Return a function that makes a leaf with agent command on the sample repository."""
    made = []

    def make(command, *, repo=None, bead="coder-general-0a0a0a0a", wall=60, **limits):
        opened = open_repository(repo or sample)
        sizes = {"memory": 256 << 20, "cpus": 2.0, "pids": 128, "disk": 200 << 20, "tmp": 64 << 20, **limits}
        brief = Brief(bead, "coder", "general", "a task", "easy", "command", "none", command, limits={"wall_s": wall})
        plan = LeafPlan(
            bead=bead,
            name=f"study-coder-{bead[-8:]}",
            base_sha=opened.head_sha,
            image=image("student"),
            limits=Limits(wall=wall, **sizes),
            brief=brief,
            soul="Be brief.",
            instructions="",
            gate=None,
        )
        leaf = StudentLeaf(home, engine, opened, plan, Recorder(), starting=contextlib.nullcontext)
        leaf.journal = leaf._journal
        made.append(leaf)
        return leaf

    yield make
    for leaf in made:
        leaf.dispose()


@pytest.fixture
def run(make_leaf):
    """Return a function that runs a command in a leaf and gives back (record, output text, frozen tree)."""

    def go(command, **options):
        with make_leaf(command, **options) as leaf:
            leaf.boot()
            leaf.write_brief()
            record = leaf.run_task()
            frozen = leaf.freeze("a task")
        assert threading.active_count() < 40
        return record, "\n".join(record.output), frozen

    return go
