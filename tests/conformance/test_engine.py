"""What every engine must do: one suite over the engine in memory and a real one (issue 2, "engine")."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.base import (
    LABEL_HOME,
    Engine,
    Exited,
    Gone,
    Lost,
    Mount,
    Pending,
    Rejected,
    Running,
    State,
    Unconfirmed,
)
from orchestrator.errors import (
    ContainerNotFoundError,
    EngineError,
    ImageMissingError,
    MountRefusedError,
    NameTakenError,
    SchoolError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.conftest import Lab


def test_is_an_engine_and_describes_itself(lab: Lab) -> None:
    assert isinstance(lab.engine, Engine)
    info = lab.engine.info()
    assert info.endpoint.startswith(("unix://", "fake://", "tcp://"))
    assert info.cgroup_version in {"1", "2"}
    assert info.runtimes


# -- a watch: output, exit, out of memory ---------------------------------------------------------------------


@pytest.mark.parametrize("auto_remove", [False, True])
def test_output_and_exit_code_arrive(lab: Lab, auto_remove: bool) -> None:
    container = lab.create("hello", auto_remove=auto_remove)
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert list(watch.lines()) == [b"hello"]
    assert watch.wait(30) == Exited(7, oom=False)
    assert watch.stderr_tail() == b"oops\n"
    watch.close()


def test_an_auto_removed_container_is_gone_and_its_watch_still_answers(lab: Lab) -> None:
    container = lab.create("lines", auto_remove=True)
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert watch.wait(30) == Exited(0)
    lab.until(lambda: not lab.engine.list(lab.labels))
    with pytest.raises(ContainerNotFoundError):
        lab.engine.inspect(container)
    assert len(list(watch.lines())) == 20000
    watch.close()


def test_every_line_comes_once_and_in_order(lab: Lab) -> None:
    container = lab.create("lines", auto_remove=True)
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert list(watch.lines()) == [str(number).encode() for number in range(1, 20001)]
    watch.close()


def test_a_long_line_is_cut_at_the_limit_and_the_next_is_whole(lab: Lab) -> None:
    container = lab.create("long-line")
    watch = lab.engine.watch(container, line_limit=1000)
    lab.engine.start(container)
    assert list(watch.lines()) == [b"x" * 1000, b"next"]
    watch.close()


def test_a_last_line_without_newline_is_a_line(lab: Lab) -> None:
    container = lab.create("no-newline")
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert list(watch.lines()) == [b"a", b"b"]
    watch.close()


def test_of_stderr_the_end_is_kept(lab: Lab) -> None:
    container = lab.create("stderr")
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert list(watch.lines()) == [b"done"]
    assert watch.wait(30) == Exited(0)
    tail = watch.stderr_tail()
    assert tail.endswith(b"error 20000\n")
    assert len(tail) <= 65536
    watch.close()


@pytest.mark.parametrize("auto_remove", [False, True])
def test_out_of_memory_is_reported(lab: Lab, auto_remove: bool) -> None:
    container = lab.create("out-of-memory", memory=64 << 20, auto_remove=auto_remove)
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert watch.wait(60) == Exited(137, oom=True)
    watch.close()


def test_out_of_memory_of_a_child_is_reported_with_the_programs_own_exit_code(lab: Lab) -> None:
    container = lab.create("child-out-of-memory", memory=64 << 20)
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert watch.wait(60) == Exited(0, oom=True)
    watch.close()


def test_wait_says_pending_before_the_start_and_running_after_it(lab: Lab) -> None:
    container = lab.create("sleeper")
    watch = lab.engine.watch(container)
    assert isinstance(watch.wait(0.05), Pending)
    lab.engine.start(container)
    assert next(watch.lines()) == b"ready"
    assert isinstance(watch.wait(0.05), Running)
    watch.close()


def test_a_container_removed_before_its_start_is_rejected(lab: Lab) -> None:
    container = lab.create("quick")
    watch = lab.engine.watch(container)
    lab.engine.remove(container)
    assert isinstance(watch.wait(30), Rejected)
    assert list(watch.lines()) == []
    watch.close()


def test_a_container_removed_while_it_runs_has_an_end(lab: Lab) -> None:
    container = lab.create("sleeper")
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert next(watch.lines()) == b"ready"
    lab.engine.remove(container)
    assert isinstance(watch.wait(30), Exited | Lost)
    watch.close()


def test_close_ends_blocked_readers(lab: Lab) -> None:
    container = lab.create("sleeper")
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    lines = watch.lines()
    assert next(lines) == b"ready"
    ended: list[str] = []
    readers = [
        threading.Thread(target=lambda: (list(lines), ended.append("lines"))),
        threading.Thread(target=lambda: (watch.wait(), ended.append("wait"))),
    ]
    for reader in readers:
        reader.start()
    watch.close()
    for reader in readers:
        reader.join(10)
    assert sorted(ended) == ["lines", "wait"]
    assert lab.engine.inspect(container).state is State.RUNNING
    watch.close()


def test_a_watch_made_late_hears_what_was_printed_before(lab: Lab) -> None:
    container = lab.started("polite")
    lab.until(lambda: b"ready" in lab.engine.logs(container))
    watch = lab.engine.watch(container)
    assert next(watch.lines()) == b"ready"
    lab.engine.stop(container)
    assert watch.wait(30) == Exited(0)
    watch.close()


def test_a_watch_of_an_ended_container_answers_at_once(lab: Lab) -> None:
    container = lab.started("hello")
    lab.until(lambda: lab.engine.inspect(container).state is State.EXITED)
    watch = lab.engine.watch(container)
    assert watch.wait(5) == Exited(7)
    assert list(watch.lines()) == [b"hello"]
    watch.close()


def test_many_watches_at_once_keep_their_outputs_apart(lab: Lab) -> None:
    seen: dict[int, list[bytes]] = {}

    def one(number: int) -> None:
        container = lab.create("lines" if number % 2 else "hello", auto_remove=True)
        watch = lab.engine.watch(container)
        lab.engine.start(container)
        seen[number] = list(watch.lines())
        watch.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(seen[number]) for number in range(4)] == [1, 20000, 1, 20000]


# -- one container's life -------------------------------------------------------------------------------------


def test_environment_and_mounts_reach_the_program(lab: Lab, tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "in" / "file").write_text("inside\n")
    container = lab.create(
        "env",
        env={"GREETING": "good=morning"},
        mounts=(Mount(str(tmp_path / "in"), "/in", read_only=True), Mount(str(tmp_path / "out"), "/out")),
    )
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    assert list(watch.lines()) == [b"good=morning", b"inside"]
    assert watch.wait(30) == Exited(0)
    assert (tmp_path / "out" / "file").read_text() == "written\n"
    watch.close()


def test_with_network_none_loopback_is_the_only_device(lab: Lab) -> None:
    container = lab.create("network", network="none")
    watch = lab.engine.watch(container)
    lab.engine.start(container)
    devices = [line.split(b":")[0].strip() for line in watch.lines() if b":" in line]
    assert devices == [b"lo"]
    watch.close()


def test_inspect_follows_the_life_of_a_container(lab: Lab) -> None:
    spec = lab.spec("hello")
    container = lab.engine.create(spec)
    made = lab.engine.inspect(container)
    assert (made.id, made.name, made.state, made.exit_code) == (container, spec.name, State.CREATED, None)
    assert {**made.labels, **spec.labels} == dict(made.labels)
    assert abs(made.created - time.time()) < 3600
    lab.engine.start(container)
    lab.until(lambda: lab.engine.inspect(container).state is State.EXITED)
    ended = lab.engine.inspect(spec.name)
    assert (ended.exit_code, ended.oom_killed) == (7, False)
    assert sorted(lab.engine.logs(container).splitlines()) == [b"hello", b"oops"]


def test_a_name_that_is_taken_is_an_error_of_its_own(lab: Lab) -> None:
    spec = lab.spec("quick")
    lab.engine.create(spec)
    with pytest.raises(NameTakenError) as caught:
        lab.engine.create(spec)
    assert caught.value.next_step


def test_a_missing_image_is_an_error_of_its_own(lab: Lab) -> None:
    spec = dataclasses.replace(lab.spec("quick"), image="school-no-such-image:1")
    with pytest.raises(ImageMissingError) as caught:
        lab.engine.create(spec)
    assert "school-no-such-image:1" in str(caught.value)
    assert lab.engine.image("school-no-such-image:1") is None


def test_a_missing_mount_source_is_refused_and_not_made(lab: Lab, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(MountRefusedError):
        lab.create("quick", mounts=(Mount(str(missing), "/x"),))
    assert not missing.exists()


def test_remove_is_gone_also_the_second_time(lab: Lab) -> None:
    container = lab.started("sleeper")
    assert lab.engine.remove(container) == Gone()
    assert lab.engine.remove(container) == Gone()
    assert lab.engine.remove("school-no-such-container") == Gone()


def test_remove_without_force_of_a_running_container_is_unconfirmed(lab: Lab) -> None:
    container = lab.started("sleeper")
    removal = lab.engine.remove(container, force=False, timeout=0.3)
    assert isinstance(removal, Unconfirmed)
    assert container[:12] in removal.where


def test_removers_at_the_same_time_all_find_it_gone(lab: Lab) -> None:
    container = lab.started("sleeper", auto_remove=True)
    removals: list[object] = []
    threads = [
        threading.Thread(target=lambda: removals.append(lab.engine.remove(container, timeout=30))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert removals == [Gone()] * 4


def test_list_matches_labels_exactly(lab: Lab) -> None:
    container = lab.create("quick")
    assert [found.id for found in lab.engine.list(lab.labels)] == [container]
    assert [found.id for found in lab.engine.list({LABEL_HOME: lab.home, "school.kind": ""})] == [container]
    assert not lab.engine.list({LABEL_HOME: lab.home[:-1]})
    assert not lab.engine.list({LABEL_HOME: lab.home, "school.bead": ""})
    assert not lab.engine.list(lab.labels, all=False)


def test_stop_asks_first_and_kill_does_not(lab: Lab) -> None:
    for end, code in ((lab.engine.stop, 0), (lab.engine.kill, 137)):
        container = lab.started("polite")
        lab.until(lambda made=container: b"ready" in lab.engine.logs(made))
        end(container)
        lab.until(lambda made=container: lab.engine.inspect(made).state is State.EXITED)
        assert lab.engine.inspect(container).exit_code == code


def test_stop_ends_what_does_not_listen(lab: Lab) -> None:
    container = lab.started("sleeper")
    lab.engine.stop(container, grace=1)
    assert lab.engine.inspect(container).exit_code == 137


def test_stop_and_kill_of_what_does_not_run_do_nothing(lab: Lab) -> None:
    container = lab.create("quick")
    for name in (container, "school-no-such-container"):
        lab.engine.stop(name)
        lab.engine.kill(name)
    assert lab.engine.inspect(container).state is State.CREATED


def test_rename(lab: Lab) -> None:
    spec = lab.spec("quick")
    container = lab.engine.create(spec)
    lab.engine.rename(container, f"{spec.name}-b")
    assert lab.engine.inspect(container).name == f"{spec.name}-b"
    other = lab.create("quick")
    with pytest.raises(NameTakenError):
        lab.engine.rename(other, f"{spec.name}-b")


def test_exec_returns_code_and_output(lab: Lab) -> None:
    container = lab.started("sleeper")
    script = "printf x; exit 3" if lab.image else "x"
    assert lab.engine.exec(container, ["sh", "-c", script]) == (3, b"x")


def test_exec_in_a_container_that_does_not_run_is_an_error(lab: Lab) -> None:
    with pytest.raises(EngineError):
        lab.engine.exec(lab.create("sleeper"), ["true"])


@pytest.mark.parametrize("verb", ["start", "inspect", "watch", "logs"])
def test_an_unknown_container_is_an_error_with_a_next_step(lab: Lab, verb: str) -> None:
    with pytest.raises(ContainerNotFoundError) as caught:
        getattr(lab.engine, verb)("school-no-such-container")
    assert isinstance(caught.value, SchoolError)
    assert caught.value.next_step


def test_a_published_port_is_chosen_by_the_engine_and_reported(lab: Lab) -> None:
    network = f"school-{lab.home}"
    lab.engine.ensure_network(network, labels=lab.labels)
    try:
        container = lab.started("sleeper", network=network, publish={8080: ("127.0.0.1", 0)})
        host, port = lab.engine.inspect(container).ports[8080]
        assert host == "127.0.0.1"
        assert port > 1024
        lab.engine.remove(container)
    finally:
        lab.engine.remove_network(network)


def test_events_tell_of_these_labels_only(lab: Lab) -> None:
    since = time.time() - 60
    container = lab.started("hello")
    lab.engine.create(dataclasses.replace(lab.spec("quick"), labels={LABEL_HOME: f"{lab.home}x"}))
    events = lab.engine.events(lab.labels, since=since)
    heard = []
    for identity, action, attributes in events:
        heard.append((identity, action))
        if action == "die":
            assert attributes["exitCode"] == "7"
            break
    events.close()  # type: ignore[attr-defined]
    assert heard == [(container, "create"), (container, "start"), (container, "die")]
    for extra in lab.engine.list({LABEL_HOME: f"{lab.home}x"}):
        lab.engine.remove(extra.id)


# -- images, networks, volumes --------------------------------------------------------------------------------


def test_networks_and_volumes_are_made_once_and_removed_twice(lab: Lab) -> None:
    name = f"school-{lab.home}"
    made = lab.engine.ensure_network(name, labels=lab.labels)
    assert lab.engine.ensure_network(name, labels=lab.labels) == made
    lab.engine.ensure_volume(name, labels=lab.labels)
    lab.engine.ensure_volume(name, labels=lab.labels)
    for _ in range(2):
        lab.engine.remove_network(name)
        lab.engine.remove_volume(name)


def test_an_image_can_get_another_name(lab: Lab) -> None:
    source = lab.image or "quick"
    name = f"school-test/{lab.home}:a"
    lab.engine.tag(source, name)
    found = lab.engine.image(name)
    assert found is not None
    assert found.id == lab.engine.image(source).id  # type: ignore[union-attr]
    lab.engine.remove_image(name)
    lab.engine.remove_image(name)
    assert lab.engine.image(name) is None
    assert lab.engine.image(source) is not None
