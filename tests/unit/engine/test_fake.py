"""What the fake engine offers beyond the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.base import ContainerSpec, Exited
from orchestrator.engine.fake import FakeEngine
from orchestrator.errors import EngineUnavailableError

if TYPE_CHECKING:
    from orchestrator.engine.fake_run import ContainerRun


def test_a_failure_is_raised_as_often_as_it_was_set() -> None:
    engine = FakeEngine({"i": lambda _run: 0})
    engine.fail("create", EngineUnavailableError("gone"), times=2)
    for _ in range(2):
        with pytest.raises(EngineUnavailableError):
            engine.create(ContainerSpec(image="i", name="n"))
    assert engine.create(ContainerSpec(image="i", name="n"))
    assert [verb for verb, _ in engine.calls].count("create") == 3
    engine.close()


def test_what_a_killed_program_prints_is_not_heard() -> None:
    def stubborn(run: ContainerRun) -> int:
        while True:
            run.out("still here")
            run.sleep(0.01)

    engine = FakeEngine({"i": stubborn})
    container = engine.create(ContainerSpec(image="i", name="n"))
    watch = engine.watch(container)
    engine.start(container)
    assert next(watch.lines()) == b"still here"
    engine.kill(container)
    assert watch.wait(5) == Exited(137)
    heard = len(engine.run(container).stdout)
    engine.close()
    assert len(engine.run(container).stdout) == heard


def test_a_path_outside_every_mount_is_not_there() -> None:
    engine = FakeEngine({"i": lambda _run: 0})
    container = engine.create(ContainerSpec(image="i", name="n"))
    with pytest.raises(FileNotFoundError):
        engine.run(container).path("/etc/passwd")
