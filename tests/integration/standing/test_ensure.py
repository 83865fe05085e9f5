"""One healthy container per role, whatever was done to it (R-29, R-53; issue 3, item 5)."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.base import LABEL_HOME, LABEL_SPEC, Container, Healthcheck, State
from orchestrator.errors import NameTakenError, PartUnhealthyError
from orchestrator.sandbox.standing import parts, spec_digest, stop_all

if TYPE_CHECKING:
    from tests.integration.standing.conftest import Stand

pytestmark = pytest.mark.engine


def _assert_one_running(stand: Stand, container: Container) -> None:
    assert [found.id for found in stand.all()] == [container.id]
    found = stand.engine.inspect(container.id)
    assert (found.state, found.name) == (State.RUNNING, stand.name)


def test_a_missing_part_is_created_and_the_next_call_finds_it(stand: Stand) -> None:
    first = stand.up()
    assert stand.up().id == first.id
    _assert_one_running(stand, first)
    assert first.labels[LABEL_SPEC] == spec_digest(stand.part().spec)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_stopped_or_killed_part_is_started_again(stand: Stand, end: str) -> None:
    first = stand.up()
    getattr(stand.engine, end)(first.id)
    while stand.engine.inspect(first.id).state is State.RUNNING:
        time.sleep(0.05)
    again = stand.up()
    assert again.id == first.id
    _assert_one_running(stand, again)


def test_a_part_removed_by_hand_is_created_again(stand: Stand) -> None:
    first = stand.up()
    stand.engine.remove(first.id)
    again = stand.up()
    assert again.id != first.id
    _assert_one_running(stand, again)


def test_a_renamed_part_is_found_by_its_labels_and_gets_its_name_back(stand: Stand) -> None:
    first = stand.up()
    stand.engine.rename(first.id, f"{stand.name}-renamed")
    again = stand.up()
    assert again.id == first.id
    _assert_one_running(stand, again)


def test_a_stale_part_is_replaced_when_idle_and_kept_while_busy(stand: Stand) -> None:
    first = stand.up()
    changed = stand.part(env={"NEW": "1"})
    assert stand.up(changed, idle=False).id == first.id
    replaced = stand.up(changed, idle=True)
    assert replaced.id != first.id
    assert replaced.labels[LABEL_SPEC] == spec_digest(changed.spec)
    _assert_one_running(stand, replaced)


def test_a_stale_part_that_does_not_run_is_replaced_without_asking(stand: Stand) -> None:
    first = stand.up()
    stand.engine.kill(first.id)
    replaced = stand.up(stand.part(env={"NEW": "1"}), idle=False)
    assert replaced.id != first.id
    _assert_one_running(stand, replaced)


def test_of_doubled_parts_the_working_one_is_kept(stand: Stand) -> None:
    first = stand.up()
    stand.by_hand(f"{stand.name}-double")
    stopped = stand.by_hand(f"{stand.name}-third")
    stand.engine.kill(stopped)
    assert stand.up().id == first.id
    _assert_one_running(stand, first)


def test_a_double_is_kept_when_it_is_the_only_one_that_works(stand: Stand) -> None:
    first = stand.up()
    stand.engine.kill(first.id)
    while stand.engine.inspect(first.id).state is State.RUNNING:
        time.sleep(0.05)
    double = stand.by_hand(f"{stand.name}-double")
    assert stand.up(idle=False).id == double
    _assert_one_running(stand, stand.engine.inspect(double))


def test_a_foreign_container_with_the_name_is_named_and_not_touched(stand: Stand) -> None:
    foreign = stand.by_hand(stand.name, labels={LABEL_HOME: f"{stand.home.id}-other"})
    with pytest.raises(NameTakenError) as caught:
        stand.up()
    assert foreign[:12] in caught.value.message
    assert f"docker rm -f {foreign[:12]}" in caught.value.next_step
    assert stand.engine.inspect(foreign).state is State.RUNNING
    assert not stand.all()


def test_health_is_asked_for_without_waiting_for_the_engines_interval(stand: Stand) -> None:
    # the engine's own first check comes after an hour: only a check of ours can make this return
    up = stand.up(stand.healthy("test -e /tmp/up", f"sleep 0.5; touch /tmp/up; {_SLEEP}", interval=3600))
    _assert_one_running(stand, up)


_SLEEP = "while :; do sleep 0.1; done"


def test_a_fresh_part_that_ends_is_an_error_with_the_end_of_its_log(stand: Stand) -> None:
    part = stand.healthy("false", "echo first; echo the reason >&2; exit 9")
    with pytest.raises(PartUnhealthyError, match="the reason") as caught:
        stand.up(part)
    assert stand.name in caught.value.next_step


def test_a_part_that_is_not_healthy_in_time_is_an_error(stand: Stand) -> None:
    with pytest.raises(PartUnhealthyError, match="not healthy after 1 s"):
        stand.up(stand.healthy("false", "echo waiting; sleep 300", timeout=1))


def test_an_unhealthy_part_is_replaced(stand: Stand) -> None:
    part = stand.healthy("test ! -e /tmp/ill", interval=0.2)
    first = stand.up(part)
    stand.engine.exec(first.id, ["touch", "/tmp/ill"])
    while stand.engine.inspect(first.id).health != "unhealthy":
        time.sleep(0.05)
    replaced = stand.up(part)
    assert replaced.id != first.id
    _assert_one_running(stand, replaced)


def test_a_part_in_a_restart_loop_is_replaced(stand: Stand) -> None:
    looping = stand.by_hand(stand.name, entrypoint=("sh", "-c", "exit 1"), restart="unless-stopped")
    while stand.engine.inspect(looping).restarts < 3:
        time.sleep(0.05)
    replaced = stand.up()
    assert replaced.id != looping
    _assert_one_running(stand, replaced)


def test_a_part_whose_replacement_is_no_better_is_an_error(stand: Stand) -> None:
    part = stand.part("echo broken by design; exit 1", restart="unless-stopped")
    part = dataclasses.replace(part, needs_health=True, spec=dataclasses.replace(part.spec, healthcheck=_never()))
    with pytest.raises(PartUnhealthyError, match="broken by design"):
        stand.up(part)
    with pytest.raises(PartUnhealthyError, match="broken by design"):
        stand.up(part)
    assert len(stand.all()) == 1


def _never() -> Healthcheck:
    return Healthcheck(("false",), interval=3600)


def test_threads_that_ensure_at_once_end_with_one_container(stand: Stand) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(stand.up().id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert len(set(found)) == 1
    _assert_one_running(stand, stand.all()[0])


def test_processes_that_ensure_at_once_end_with_one_container(stand: Stand) -> None:
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from orchestrator.engine.base import ContainerSpec, Kind
        from orchestrator.engine.connect import connect
        from orchestrator.home import Home
        from orchestrator.sandbox.standing import PartSpec, ensure
        root = Path({str(stand.home.root)!r})
        home = Home(root, root / "bookbag", root / "signals", root / "locks")
        spec = ContainerSpec(image={stand.image!r}, name={stand.name!r}, entrypoint=("sleep", "300"))
        engine = connect()
        print(ensure(engine, home, PartSpec(Kind.GATE, spec, False, 10), idle=lambda: True).id)
        engine.close()
        """
    )
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert set(found) == {stand.all()[0].id}


def test_stop_all_stops_this_homes_parts_only(stand: Stand) -> None:
    mine = stand.up()
    other = stand.by_hand(f"{stand.name}-other", labels={**stand.labels, LABEL_HOME: f"{stand.home.id}-other"})
    assert [container.id for container in stop_all(stand.engine, stand.home)] == [mine.id]
    assert stand.engine.inspect(mine.id).state is State.EXITED
    assert stand.engine.inspect(other).state is State.RUNNING
    assert [container.id for container in parts(stand.engine, stand.home)] == [mine.id]
    stop_all(stand.engine, stand.home, remove=True)
    assert parts(stand.engine, stand.home) == []
