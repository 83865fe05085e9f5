"""A watch outlives its engine's absence: the engine is cut off by a proxy of ours, never stopped (issue 3, item 6)."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine import docker_watch
from orchestrator.engine.base import LABEL_HOME, Exited, Lost, Running
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.retry import patiently
from orchestrator.errors import EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.conftest import Lab

pytestmark = [
    pytest.mark.engine,
    # the SDK leaves the socket of a refused connection to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Proxy:
    """Passes connections on to the engine's socket, until it is told to drop them."""

    def __init__(self, path: Path, target: str) -> None:
        self.path = path
        self._target = target
        self._open: list[socket.socket] = []
        self._listener: socket.socket | None = None

    def up(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(self._target)
                self._open += [client, engine]
                for source, sink in ((client, engine), (engine, client)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def down(self) -> None:
        if self._listener is not None:
            for each in (self._listener, *self._open):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self.path.unlink()
            self._listener, self._open = None, []


@pytest.fixture
def proxy(tmp_path: Path, real: Lab) -> Iterator[Proxy]:
    made = Proxy(tmp_path / "p.sock", real.engine.info().endpoint.removeprefix("unix://"))
    made.up()
    yield made
    made.down()


@pytest.fixture
def engine(proxy: Proxy) -> Iterator[DockerEngine]:
    made = DockerEngine(f"unix://{proxy.path}")
    yield made
    made.close()


def test_a_container_that_still_runs_is_heard_again(real: Lab, proxy: Proxy, engine: DockerEngine) -> None:
    spec = dataclasses.replace(real.spec("polite"), entrypoint=("sh", "-c", _TALKER), auto_remove=True)
    container = engine.create(spec)
    watch = engine.watch(container)
    engine.start(container)
    lines = watch.lines()
    assert next(lines).startswith(b"line ")
    proxy.down()
    assert isinstance(watch.wait(0.3), Running)
    proxy.up()
    heard = [next(lines) for _ in range(30)]
    assert heard[-1] > heard[0]
    real.engine.stop(container)
    assert watch.wait(30) == Exited(5)
    list(lines)
    watch.close()


_TALKER = "trap 'exit 5' TERM; n=1000; while :; do echo line $n; n=$((n+1)); sleep 0.05; done"


def test_a_container_that_ended_meanwhile_is_asked_for_its_exit_code(
    real: Lab, proxy: Proxy, engine: DockerEngine
) -> None:
    container = engine.create(real.spec("polite"))
    watch = engine.watch(container)
    engine.start(container)
    assert next(watch.lines()) == b"ready"
    proxy.down()
    real.engine.kill(container)
    proxy.up()
    assert watch.wait(30) == Exited(137)
    watch.close()


def test_a_container_that_vanished_meanwhile_is_lost(real: Lab, proxy: Proxy, engine: DockerEngine) -> None:
    container = engine.create(real.spec("polite"))
    watch = engine.watch(container)
    engine.start(container)
    lines = watch.lines()
    assert next(lines) == b"ready"
    proxy.down()
    real.engine.remove(container)
    proxy.up()
    assert isinstance(watch.wait(30), Lost)
    assert list(lines) == []
    watch.close()


def test_an_engine_that_stays_away_means_lost(
    real: Lab, proxy: Proxy, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_watch, "RECONNECT_BUDGET", 0.5)
    container = engine.create(real.spec("polite"))
    watch = engine.watch(container)
    engine.start(container)
    lines = watch.lines()
    assert next(lines) == b"ready"
    proxy.down()
    assert isinstance(watch.wait(30), Lost)
    assert list(lines) == []
    watch.close()


def test_close_works_while_the_engine_is_away(real: Lab, proxy: Proxy, engine: DockerEngine) -> None:
    container = engine.create(real.spec("polite"))
    watch = engine.watch(container)
    engine.start(container)
    assert next(watch.lines()) == b"ready"
    proxy.down()
    watch.close()
    assert isinstance(watch.wait(), Running)


def test_patience_carries_a_call_over_an_absence(real: Lab, proxy: Proxy, engine: DockerEngine) -> None:
    container = engine.create(real.spec("quick"))
    proxy.down()
    with pytest.raises(EngineUnavailableError):
        engine.list({LABEL_HOME: real.home})
    threading.Timer(0.5, proxy.up).start()
    for attempt in patiently(20):
        with attempt:
            found = engine.list({LABEL_HOME: real.home})
    assert [each.id for each in found] == [container]
