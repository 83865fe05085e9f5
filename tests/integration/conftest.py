"""Fixtures on a real engine. Everything made here carries a home id of its own and is removed by it at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_HOME
from orchestrator.home import Home
from orchestrator.settings import load_settings


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
    identity = {"GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@x", "GIT_COMMITTER_NAME": "U", "GIT_COMMITTER_EMAIL": "u@x"}
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
