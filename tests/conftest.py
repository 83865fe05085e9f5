"""What holds for every test, and the fixtures on a real engine that several kinds of tests share.

Tests that can't run on this machine are named and counted, never skipped silently. Everything that a fixture makes
carries a home id of its own and is removed by it at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from orchestrator.engine.base import LABEL_HOME
from orchestrator.git.repository import open_repository
from orchestrator.home import Home
from orchestrator.leaf.brief import Brief
from orchestrator.leaf.journal import Silent
from orchestrator.leaf.student import LeafPlan, StudentLeaf
from orchestrator.sandbox.spec import Limits
from orchestrator.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path


LEFT = pytest.StashKey()

NEEDS = {
    "root": (lambda: os.geteuid() == 0, "needs root"),
    "netns": (
        lambda: os.geteuid() == 0 and all(shutil.which(tool) for tool in ("dockerd", "nsenter", "unshare")),
        "needs root and a dockerd of its own in a network namespace",
    ),
}


def pytest_configure():
    """Start from a terminal's signals: nohup, or a shell's background job, has some ignored, and children inherit that."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    able = {marker: possible() for marker, (possible, _) in NEEDS.items()}
    kept, left = [], []
    for item in items:
        missing = [marker for marker in NEEDS if item.get_closest_marker(marker) and not able[marker]]
        (left if missing else kept).append(item)
        if missing:
            item.left_because = NEEDS[missing[0]][1]
    if left:
        config.hook.pytest_deselected(items=left)
        config.stash.setdefault(LEFT, []).extend(left)
        items[:] = kept


def pytest_terminal_summary(terminalreporter, config):
    left = config.stash.get(LEFT, [])
    if left:
        terminalreporter.section(f"{len(left)} tests not run on this machine")
        for item in left:
            terminalreporter.line(f"{item.nodeid}: {item.left_because}")


@pytest.fixture(scope="session")
def engine():
    from orchestrator.engine.connect import connect

    connected = connect()
    connected.info()  # no engine: the error says what to do
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def image(engine):
    """Return a function that gives the tag of one of the school's own images, built when it is not there."""
    from orchestrator.sandbox.images import ensure_images

    return lambda name: ensure_images(engine, load_settings(), [name], print)[name]


def _make_home(root: Path) -> Home:
    return Home(root, root / "bookbag", root / "signals", root / "locks").ensure()


@pytest.fixture
def home(tmp_path, engine):
    """A home of its own; what it left on the engine is removed, and a leaf among it fails the test."""
    made = _make_home(tmp_path / "home")
    yield made
    left = engine.list({LABEL_HOME: made.id})
    for container in left:
        engine.remove(container.id)
    shutil.rmtree(made.root, ignore_errors=True)
    assert [container.name for container in left] == []


def git(repo: Path, *arguments: str) -> str:
    """Run git as a user would."""
    identity = {
        "GIT_AUTHOR_NAME": "U",
        "GIT_AUTHOR_EMAIL": "u@x",
        "GIT_COMMITTER_NAME": "U",
        "GIT_COMMITTER_EMAIL": "u@x",
    }
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=True, env={**os.environ, **identity}
    )
    return done.stdout


@pytest.fixture
def sample(tmp_path) -> Path:
    """The sample repository of `school demo`, with a tag."""
    from orchestrator.principal.sample import make_sample

    root = make_sample(tmp_path / "sample")
    git(root, "tag", "-a", "v1.0", "-m", "one")
    return root


def _with_role(arguments: tuple[object, ...]) -> list[str]:
    """Give a spawn a role when it has none: in a home of many failing tests nobody stays eligible (R-40)."""
    given = [str(argument) for argument in arguments]
    if given[:1] != ["spawn"] or "--role" in given or "--directed" in given:
        return [argument for argument in given if argument != "--directed"]
    return ["spawn", "--role", "coder", *given[1:]]


class School:
    """A school of the test session's own, driven through its command line as a user would."""

    def __init__(self, root: Path) -> None:
        self.home = _make_home(root)
        self.env = {**os.environ, "SCHOOL_HOME": str(root), "NO_COLOR": "1", "HANDOFF_TIMEOUT": "60"}

    def run(self, *arguments: object, timeout: float = 300, **more: object) -> subprocess.CompletedProcess[str]:
        """Run `school …` to its end."""
        argv = [sys.executable, "-m", "orchestrator.cli.main", *_with_role(arguments)]
        env = {**self.env, **{name: str(value) for name, value in more.items()}}
        return subprocess.run(
            argv, check=False, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )

    def start(self, *arguments: object, **more: object) -> subprocess.Popen[str]:
        """Start `school …` and return its process."""
        argv = [sys.executable, "-m", "orchestrator.cli.main", *_with_role(arguments)]
        env = {**self.env, **{name: str(value) for name, value in more.items()}}
        return subprocess.Popen(
            argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
        )

    def spawn(self, repo: Path, task: str, *options: object, **more: object) -> Spawned:
        """Run `school spawn --json` and return what it printed and how it ended."""
        agent = () if "--agent" in options else ("--agent", "light")
        done = self.run("spawn", "--json", "--repo", repo, *agent, *options, task, **more)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            report = {}
        return Spawned(done.returncode, report, done.stdout, done.stderr)

    def traces(self, engine: object) -> dict[str, list[str]]:
        """Return what is left of students: containers, leaf folders, sockets, leases."""
        from orchestrator.engine.base import LABEL_KIND

        kinds = ("leaf", "verify", "probe")
        containers = [c.name for k in kinds for c in engine.list({LABEL_HOME: self.home.id, LABEL_KIND: k})]
        sockets = [p.name for p in (self.home.gate / "sockets").iterdir() if not p.name.startswith("teacher-")]
        return {
            "containers": containers,
            "folders": [path.name for path in self.home.leaves.iterdir()],
            "sockets": sockets,
            "leases": [path.name for path in self.home.leases.glob("bead-*")],
        }


class Spawned(NamedTuple):
    """How a `school spawn --json` ended."""

    code: int
    report: dict
    stdout: str
    stderr: str


NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}


@pytest.fixture(scope="session")
def school(engine, tmp_path_factory):
    """The whole school, up: engine, images, OmniRoute, gate, rehearsal and both teachers."""
    made = School(tmp_path_factory.mktemp("school") / "home")
    up = made.run("up", timeout=1800)
    assert up.returncode == 0, up.stderr
    yield made
    for container in engine.list({LABEL_HOME: made.home.id}):
        engine.remove(container.id)
    engine.remove_network(f"school-{made.home.id}")
    engine.remove_volume(f"school-{made.home.id}-omniroute-data")


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """On a failure print what the engine knows of every container of the test's home."""
    outcome = yield
    report = outcome.get_result()
    made = item.funcargs.get("home") if hasattr(item, "funcargs") else None
    connected = item.funcargs.get("engine") if hasattr(item, "funcargs") else None
    if report.when == "call" and report.failed and made is not None and connected is not None:
        with contextlib.suppress(Exception):
            for container in connected.list({LABEL_HOME: made.id}):
                logs = connected.logs(container.id, tail=40).decode("utf-8", "replace")
                report.sections.append((f"container {container.name}", f"{container}\n{logs}"))
