"""The two engines under test, and what "a program" is on each: a shell script, or a callable."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, ContainerSpec, Engine, Kind
from orchestrator.engine.connect import connect
from orchestrator.engine.fake import FakeEngine
from orchestrator.sandbox.images import ensure_images
from orchestrator.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.engine.fake_run import ContainerRun

SCRIPTS = {
    "hello": "echo hello; echo oops >&2; exit 7",
    "lines": "seq 1 20000",
    "long-line": "head -c 300000 /dev/zero | tr '\\0' x; echo; echo next",
    "no-newline": "printf 'a\\nb'",
    "stderr": 'for n in $(seq 1 20000); do echo "error $n" >&2; done; echo done',
    "sleeper": "echo ready; sleep 300",
    "polite": "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done",
    "out-of-memory": "exec tail /dev/zero",
    "child-out-of-memory": "tail /dev/zero; exit 0",
    "env": 'echo "$GREETING"; cat /in/file; echo written > /out/file',
    "network": "cat /proc/net/dev",
    "quick": "exit 0",
}


def _hello(run: ContainerRun) -> int:
    run.out("hello")
    run.err("oops\n")
    return 7


def _lines(run: ContainerRun) -> int:
    for number in range(1, 20001):
        run.out(str(number))
    return 0


def _long_line(run: ContainerRun) -> int:
    run.out("x" * 300000)
    run.out("next")
    return 0


def _no_newline(run: ContainerRun) -> int:
    run.out("a")
    run.out("b")
    return 0


def _stderr(run: ContainerRun) -> int:
    for number in range(1, 20001):
        run.err(f"error {number}\n")
    run.out("done")
    return 0


def _sleeper(run: ContainerRun) -> int:
    run.out("ready")
    while True:
        run.sleep(300)


def _polite(run: ContainerRun) -> int:
    run.out("ready")
    while "SIGTERM" not in run.signals:
        run.sleep(300)
    return 0


def _out_of_memory(run: ContainerRun) -> int:
    run.oom()
    return 137


def _child_out_of_memory(run: ContainerRun) -> int:
    run.oom()
    return 0


def _env(run: ContainerRun) -> int:
    run.out(run.env["GREETING"])
    run.out(run.path("/in/file").read_text().rstrip("\n"))
    run.path("/out/file").write_text("written\n")
    return 0


def _network(run: ContainerRun) -> int:
    run.out("    lo: 0")
    return 0


PROGRAMS: dict[str, Callable[[ContainerRun], int]] = {
    "hello": _hello,
    "lines": _lines,
    "long-line": _long_line,
    "no-newline": _no_newline,
    "stderr": _stderr,
    "sleeper": _sleeper,
    "polite": _polite,
    "out-of-memory": _out_of_memory,
    "child-out-of-memory": _child_out_of_memory,
    "env": _env,
    "network": _network,
    "quick": lambda _run: 0,
}


@dataclass
class Lab:
    """An engine, and specs of containers that do known things on it."""

    engine: Engine
    image: str  # "" on the fake engine, where each program is an image of its own
    home: str = field(default_factory=lambda: f"test-{secrets.token_hex(6)}")

    @property
    def labels(self) -> dict[str, str]:
        return {LABEL_HOME: self.home, LABEL_KIND: Kind.PROBE.value}

    def spec(self, program: str, **fields: Any) -> ContainerSpec:
        base: dict[str, Any] = {
            "image": self.image or program,
            "name": f"school-{self.home}-{secrets.token_hex(4)}",
            "labels": self.labels,
        }
        if self.image:
            base["entrypoint"] = ("sh", "-c", SCRIPTS[program])
        return ContainerSpec(**(base | fields))

    def create(self, program: str, **fields: Any) -> str:
        return self.engine.create(self.spec(program, **fields))

    def started(self, program: str, **fields: Any) -> str:
        container = self.create(program, **fields)
        self.engine.start(container)
        return container

    @staticmethod
    def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
        """Wait until the condition is true, asked again and again."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not become true"
            time.sleep(0.02)


@contextlib.contextmanager
def real_engine() -> Iterator[Lab]:
    engine = connect()
    try:
        existing = [tag for image in engine.images({}) for tag in image.tags if tag.startswith("school/base:")]
        image = existing[0] if existing else ensure_images(engine, load_settings(), ["base"], print)["base"]
        lab = Lab(engine, image)
        try:
            yield lab
        finally:
            for container in engine.list({LABEL_HOME: lab.home}):
                engine.remove(container.id)
    finally:
        engine.close()


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.engine)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    if request.param == "fake":
        fake = FakeEngine(PROGRAMS, execs={"sleeper": lambda _run, argv: (3, " ".join(argv[-1:]).encode())})
        yield Lab(fake, "")
        fake.close()
        return
    with real_engine() as real:
        yield real


@pytest.fixture
def real() -> Iterator[Lab]:
    with real_engine() as lab:
        yield lab
