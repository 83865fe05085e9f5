"""An engine in memory: for tests of this project, and for people who test programs that drive it.

A container's program is a Python callable, run in a thread::

    def student(run: ContainerRun) -> int:
        run.out('{"type": "entry.started"}')
        (run.path("/workspace") / "new.txt").write_text("hello")
        return 0

    engine = FakeEngine({"school/student:test": student})

It keeps the contract of ``base.Engine`` (the same conformance suite runs over both), and can be told to fail:
``engine.fail("start", EngineUnavailableError("gone"), times=2)``.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import signal as signals
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.base import (
    Container,
    ContainerSpec,
    EngineInfo,
    Gone,
    Removal,
    State,
    Unconfirmed,
    Watch,
)
from orchestrator.engine.fake_run import ContainerKilledError, ContainerRun, FakeWatch
from orchestrator.engine.fake_store import FakeStore
from orchestrator.engine.labels import carries
from orchestrator.errors import (
    ContainerNotFoundError,
    EngineError,
    ImageMissingError,
    MountRefusedError,
    NameTakenError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Program = Callable[["ContainerRun"], int]
    Command = Callable[["ContainerRun", Sequence[str]], tuple[int, bytes]]

_KILLED = 128 + signals.SIGKILL


def _sleep_for_ever(run: ContainerRun) -> int:
    while True:
        run.sleep(3600)
        if "SIGTERM" in run.signals:
            return 128 + signals.SIGTERM


def _no_command(run: ContainerRun, argv: Sequence[str]) -> tuple[int, bytes]:
    del run, argv
    return 0, b""


class FakeEngine(FakeStore):
    """See ``base.Engine``.

    Args:
        programs: For each image its program; these images exist. An image without one (built, pulled) sleeps.
        execs: For each image what ``exec`` answers; default: exit code 0 and no output.
    """

    endpoint = "fake://"

    def __init__(
        self,
        programs: Mapping[str, Program] | None = None,
        *,
        execs: Mapping[str, Command] | None = None,
    ) -> None:
        self._programs = dict(programs or {})
        self._execs = dict(execs or {})
        self._changed = threading.Condition()
        self._runs: dict[str, ContainerRun] = {}
        super().__init__(self._programs)
        self._events: list[tuple[float, str, str, Mapping[str, str]]] = []
        self._numbers = itertools.count(1)
        self._closed = False

    # -- what tests steer ------------------------------------------------------------------------------------

    def run(self, container: str) -> ContainerRun:
        """Return what is kept of a container, to look at or to steer.

        Raises:
            ContainerNotFoundError: it is not there.
        """
        with self._changed:
            for run in self._runs.values():
                if container in (run.id, run.container.name):
                    return run
        raise ContainerNotFoundError(f"No such container: {container}", next_step="Create it first.")

    # -- one container's life --------------------------------------------------------------------------------

    def info(self) -> EngineInfo:
        """Describe the engine."""
        self._called("info")
        return EngineInfo(
            endpoint=self.endpoint,
            version="0",
            api_version="1.41",
            os="memory",
            kernel="",
            cgroup_version="2",
            storage_driver="memory",
            root_dir="",
            rootless=False,
            userns_remap=False,
            cpus=1,
            memory=0,
            runtimes=("runc",),
            product="fake",
        )

    def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id."""
        self._called("create", spec.name)
        image = self.image(spec.image)
        if image is None:
            raise ImageMissingError(f"No such image: {spec.image}", next_step="Name it in FakeEngine(programs=…).")
        for mount in spec.mounts:
            if mount.type == "bind" and not Path(mount.source).exists():
                raise MountRefusedError(f"{mount.source} does not exist", next_step="Make the folder first.")
        with self._changed:
            if any(run.container.name == spec.name for run in self._runs.values()):
                raise NameTakenError(f"The name {spec.name} is taken.", next_step="Remove the other container.")
            identity = hashlib.sha256(f"{spec.name} {next(self._numbers)}".encode()).hexdigest()
            container = Container(
                id=identity,
                name=spec.name,
                state=State.CREATED,
                labels=dict(spec.labels),
                image=image.id,
                created=time.time(),
            )
            self._runs[identity] = ContainerRun(identity, spec, container, self._changed)
            self._event(self._runs[identity], "create")
        return identity

    def start(self, container: str) -> None:
        """Start it."""
        self._called("start", container)
        run = self.run(container)
        with self._changed:
            if run.container.state is State.RUNNING:
                return
            ports = {
                port: (host, number or 49152 + next(self._numbers)) for port, (host, number) in run.spec.publish.items()
            }
            health = "healthy" if run.spec.healthcheck else ""
            run.container = replace(
                run.container, state=State.RUNNING, ports=ports, health=health, exit_code=None, pid=1
            )
            run.started = True
            run.signals.clear()
            self._event(run, "start")
        threading.Thread(target=self._execute, args=(run,), name=run.container.name, daemon=True).start()

    def _execute(self, run: ContainerRun) -> None:
        program = self._program(run.container.image)
        with contextlib.suppress(ContainerKilledError):
            self._exit(run, program(run))

    def _program(self, image_id: str) -> Program:
        """Return the program of an image, also under another tag."""
        named = (name for name, image in self._images.items() if image.id == image_id and name in self._programs)
        return self._programs.get(next(named, ""), _sleep_for_ever)

    def _exit(self, run: ContainerRun, code: int) -> None:
        with self._changed:
            if run.ended:
                return
            run.container = replace(run.container, state=State.EXITED, exit_code=code, pid=0, health="")
            if run.container.oom_killed:
                self._event(run, "oom")
            self._event(run, "die")
            if run.spec.auto_remove:
                self._forget(run)

    def _forget(self, run: ContainerRun) -> None:
        run.removed = True
        self._runs.pop(run.id, None)
        self._event(run, "destroy")

    def watch(self, container: str, *, line_limit: int = 65536) -> Watch:
        """Listen to a container."""
        self._called("watch", container)
        return FakeWatch(self.run(container), line_limit)

    def inspect(self, container: str) -> Container:
        """Return what is known of it."""
        self._called("inspect", container)
        return self.run(container).container

    def list(self, labels: Mapping[str, str], *, all: bool = True) -> Sequence[Container]:  # noqa: A002
        """Return the containers that carry exactly these labels."""
        self._called("list")
        with self._changed:
            found = [run.container for run in self._runs.values()]
        return [
            container
            for container in found
            if carries(container.labels, labels) and (all or container.state is State.RUNNING)
        ]

    def logs(self, container: str, *, tail: int = 200) -> bytes:
        """Return the end of its output."""
        self._called("logs", container)
        return b"".join(b"".join(self.run(container).log).splitlines(keepends=True)[-tail:])

    def stop(self, container: str, *, grace: int = 5) -> None:
        """Ask it to end, and end it after ``grace`` seconds."""
        self._called("stop", container)
        self._signal(container, "SIGTERM")
        with contextlib.suppress(ContainerNotFoundError):
            run = self.run(container)
            with self._changed:
                self._changed.wait_for(lambda: run.container.state is not State.RUNNING, grace)
        self._signal(container, "SIGKILL")

    def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal."""
        self._called("kill", container)
        self._signal(container, signal)

    def _signal(self, container: str, signal: str) -> None:
        with contextlib.suppress(ContainerNotFoundError), self._changed:
            run = self.run(container)
            if run.container.state is State.RUNNING:
                run.signals.append(signal)
                self._changed.notify_all()
                if signal == "SIGKILL":
                    self._exit(run, _KILLED)

    def remove(self, container: str, *, force: bool = True, timeout: float = 10.0) -> Removal:
        """Remove it; a failure set for "remove" leaves it there, unconfirmed."""
        del timeout
        try:
            self._called("remove", container)
            run = self.run(container)
        except ContainerNotFoundError:
            return Gone()
        except EngineError as error:
            return Unconfirmed(f"{container}: {error.message}")
        with self._changed:
            if run.container.state is State.RUNNING:
                if not force:
                    return Unconfirmed(f"{container}: it is running")
                self._signal(container, "SIGKILL")
            if not run.removed:
                self._forget(run)
        return Gone()

    def exec(self, container: str, argv: Sequence[str], *, user: str = "", timeout: float = 30.0) -> tuple[int, bytes]:
        """Run a command inside."""
        del user, timeout
        self._called("exec", container)
        run = self.run(container)
        if run.container.state is not State.RUNNING:
            raise EngineError(f"The container {container} is not running.", next_step="Start it first.")
        return self._execs.get(run.spec.image, _no_command)(run, argv)

    def rename(self, container: str, name: str) -> None:
        """Give it another name."""
        self._called("rename", container)
        run = self.run(container)
        with self._changed:
            if any(other.container.name == name for other in self._runs.values()):
                raise NameTakenError(f"The name {name} is taken.", next_step="Choose another name.")
            run.container = replace(run.container, name=name)

    # -- events ----------------------------------------------------------------------------------------------

    def _event(self, run: ContainerRun, action: str) -> None:
        attributes = {**run.container.labels, "name": run.container.name}
        if action == "die":
            attributes["exitCode"] = str(run.container.exit_code)
        self._events.append((time.time(), run.id, action, attributes))
        self._changed.notify_all()

    def events(
        self, labels: Mapping[str, str], *, since: float | None = None
    ) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Yield (container id, action, attributes) until ``close()``."""
        self._called("events")
        earliest = time.time() if since is None else since
        for position in itertools.count():
            with self._changed:
                while len(self._events) <= position:
                    if self._closed:
                        return
                    self._changed.wait()
                when, identity, action, attributes = self._events[position]
            if when >= earliest and carries(attributes, labels):
                yield identity, action, attributes

    def close(self) -> None:
        """Kill what runs and end ``events()``."""
        with self._changed:
            for run in list(self._runs.values()):
                self._exit(run, _KILLED)
            self._closed = True
            self._changed.notify_all()
