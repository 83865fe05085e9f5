"""Containers that share a home's folders with this process, each in a PID namespace of its own."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest

from orchestrator import layout
from orchestrator.bookbag import Dirs
from orchestrator.engine.connect import connect
from orchestrator.home import Home
from orchestrator.sandbox.images import ensure_images
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testcontainers.core.container import DockerContainer

PACKAGE = Path(__file__).parents[3] / "orchestrator"


@pytest.fixture(scope="session")
def image() -> str:
    """Return the base image: it has Python and nothing of ours, so the code under test is the one mounted below."""
    engine = connect()
    try:
        return ensure_images(engine, Settings(), ["base"], print)["base"]
    finally:
        engine.close()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "home"
    return Home(root, root / "bookbag", root / "signals", root / "locks").ensure()


@pytest.fixture
def dirs(home: Home) -> Dirs:
    return Dirs(home.bookbags, home.signals, home.locks)


@pytest.fixture
def container(image: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], DockerContainer]]:
    """Run a Python program in a container of a teacher's kind: its uid, its three folders, no network."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    label = f"test-{secrets.token_hex(6)}"

    def run(code: str) -> DockerContainer:
        made = (
            DockerContainer(image)
            .with_command(["python3", "-c", code])
            .with_kwargs(
                user=f"{home.uid}:{home.gid}",
                network_mode="none",
                read_only=True,
                cap_drop=["ALL"],
                labels={"school.home": label},
            )
            .with_volume_mapping(PACKAGE, f"{layout.LIB}/orchestrator", "ro")
            .with_volume_mapping(home.bookbags, layout.TEACHER_BOOKBAG, "rw")
            .with_volume_mapping(home.signals, layout.TEACHER_SIGNALS, "rw")
            .with_volume_mapping(home.locks, layout.TEACHER_LOCKS, "rw")
        )
        for name, value in {
            "PYTHONPATH": layout.LIB,
            "PYTHONDONTWRITEBYTECODE": "1",
            "BOOKBAG_DIR": layout.TEACHER_BOOKBAG,
            "SIGNAL_DIR": layout.TEACHER_SIGNALS,
            "LOCK_DIR": layout.TEACHER_LOCKS,
        }.items():
            made = made.with_env(name, value)
        return made.start()

    yield run
    client = docker.from_env()
    try:
        for left in client.containers.list(all=True, filters={"label": f"school.home={label}"}):
            left.remove(force=True, v=True)
        assert client.containers.list(all=True, filters={"label": f"school.home={label}"}) == []
    finally:
        client.close()
