"""One per role: brings a standing part up, whatever state it is found in (R-29, R-53; DESIGN, "One per role").

A part is found by this home's labels, exactly; never by its name. One kernel lock per role makes it certain that
two processes that call ``ensure`` at once end with one container. What isn't ours is never touched: a foreign
container that holds the name is an error that names it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.base import (
    LABEL_HOME,
    LABEL_KIND,
    LABEL_SPEC,
    Container,
    ContainerSpec,
    Engine,
    Kind,
    State,
    Unconfirmed,
)
from orchestrator.engine.labels import carries
from orchestrator.engine.retry import patiently
from orchestrator.errors import (
    ContainerNotFoundError,
    EngineError,
    EngineUnavailableError,
    NameTakenError,
    PartUnhealthyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.home import Home

STANDING = (Kind.TEACHER_CTO, Kind.TEACHER_COO, Kind.GATE, Kind.REHEARSAL, Kind.OMNIROUTE)
"""The roles, in the order in which they stop: who calls stops before who answers."""

LOG_LINES = 30  # of a part that does not come up, in its error
NAME_BUDGET = 10.0  # seconds; a removed container's name is free again within one, by experience
LOOP_RESTARTS = 3  # from here on a running container is looked at twice
LOOP_LOOK = 1.0  # seconds between the two
FIRST_POLL, LAST_POLL = 0.05, 0.5  # seconds


@dataclass(frozen=True, slots=True)
class PartSpec:
    """A standing part as it should be.

    Args:
        kind: Its role.
        spec: Its container; the labels for home and kind are added when missing.
        needs_health: Whether it is up only when its health check passes.
        timeout: Longest time from start to up, in seconds.
    """

    kind: Kind
    spec: ContainerSpec
    needs_health: bool
    timeout: float


def spec_digest(spec: ContainerSpec) -> str:
    """Return the digest by which a container made from another spec is known to be stale."""
    fields = dataclasses.asdict(spec)
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()[:16]


def parts(engine: Engine, home: Home) -> list[Container]:
    """Return this home's standing containers, also those that are stopped or doubled."""
    return [
        container for container in engine.list({LABEL_HOME: home.id}) if container.labels.get(LABEL_KIND) in STANDING
    ]


def stop_all(engine: Engine, home: Home, *, remove: bool = False) -> list[Container]:
    """Stop this home's standing parts, those that call before those that answer; return what was stopped.

    Args:
        engine: Where they run.
        home: Whose they are.
        remove: Remove them as well; their volumes and folders stay.
    """
    found = parts(engine, home)

    def stop(container: Container) -> None:
        engine.stop(container.id)
        if remove:
            engine.remove(container.id)

    for kinds in ((Kind.TEACHER_CTO, Kind.TEACHER_COO), (Kind.GATE,), (Kind.REHEARSAL, Kind.OMNIROUTE)):
        group = [container for container in found if container.labels[LABEL_KIND] in kinds]
        with contextlib.ExitStack() as locks, ThreadPoolExecutor(max(1, len(group))) as pool:
            for kind in kinds:
                locks.enter_context(_role_lock(home, kind, timeout=60.0))
            list(pool.map(stop, group))
    return found


def ensure(engine: Engine, home: Home, part: PartSpec, *, idle: Callable[[], bool]) -> Container:
    """Return the one running container of a role, after whatever it takes to have exactly that.

    Missing: created. Stopped: started. Made from another spec: replaced when idle. Several: all but the best
    removed. Unhealthy, in a restart loop or not startable: replaced once.

    Args:
        engine: Where it runs.
        home: Whose it is.
        part: What it should be.
        idle: Asked before a working container with a stale spec is replaced.

    Raises:
        PartUnhealthyError: a fresh container did not come up; the message has the end of its log.
        NameTakenError: a container that is not this home's has the name.
    """
    labels = {LABEL_HOME: home.id, LABEL_KIND: part.kind.value}
    digest = spec_digest(part.spec)
    spec = dataclasses.replace(part.spec, labels={**part.spec.labels, **labels, LABEL_SPEC: digest})
    role = _Role(engine, dataclasses.replace(part, spec=spec), labels, digest)
    with _role_lock(home, part.kind, timeout=3 * part.timeout + NAME_BUDGET):
        for attempt in patiently():
            with attempt:
                return role.ensure(idle)
    raise AssertionError  # pragma: no cover - tenacity returns or raises


@dataclass(frozen=True, slots=True)
class _Role:
    """One call of ensure, its role's lock held."""

    engine: Engine
    part: PartSpec
    labels: dict[str, str]
    digest: str

    def ensure(self, idle: Callable[[], bool]) -> Container:
        container = self._only_one()
        if container is None:
            return self._fresh()
        if self._broken(container) or (self._stale(container) and (not _runs(container) or idle())):
            return self._replaced(container)
        try:
            return self._up(self._named(container))
        except PartUnhealthyError:
            return self._replaced(container)

    def _only_one(self) -> Container | None:
        """Return the best of what there is, the others removed."""
        found = sorted(self.engine.list(self.labels), key=self._merit, reverse=True)
        for surplus in found[1:]:
            self._remove(surplus)
        return found[0] if found else None

    def _merit(self, container: Container) -> tuple[bool, bool, bool, bool, float]:
        works = _runs(container) and container.health != "unhealthy"
        named = container.name == self.part.spec.name
        return works, container.health == "healthy", not self._stale(container), named, -container.created

    def _stale(self, container: Container) -> bool:
        return container.labels.get(LABEL_SPEC) != self.digest

    def _broken(self, container: Container) -> bool:
        """Whether starting it or waiting for it is no use."""
        if container.state in (State.RESTARTING, State.PAUSED, State.REMOVING, State.DEAD):
            return True
        if not _runs(container):
            return False
        return container.health == "unhealthy" or self._loops(container)

    def _loops(self, container: Container) -> bool:
        if container.restarts < LOOP_RESTARTS:
            return False
        time.sleep(LOOP_LOOK)
        with contextlib.suppress(ContainerNotFoundError):
            now = self.engine.inspect(container.id)
            return now.restarts != container.restarts or not _runs(now)
        return True

    def _named(self, container: Container) -> Container:
        """Give a container that somebody renamed its own name again, if that is free."""
        if container.name == self.part.spec.name:
            return container
        with contextlib.suppress(NameTakenError):
            self.engine.rename(container.id, self.part.spec.name)
        return self.engine.inspect(container.id)

    def _replaced(self, container: Container) -> Container:
        self._remove(container)
        return self._fresh()

    def _remove(self, container: Container) -> None:
        if isinstance(left := self.engine.remove(container.id), Unconfirmed):
            raise EngineError(
                f"The container {container.name} of the {self.part.kind} could not be removed: {left.where}",
                next_step=f"Remove it: `docker rm -f {container.id[:12]}`.",
            )

    def _fresh(self) -> Container:
        container = self._create()
        try:
            return self._up(container)
        except PartUnhealthyError:
            # stopped, not removed: its log is the evidence, and the next ensure replaces it
            self.engine.stop(container.id, grace=1)
            raise

    def _create(self) -> Container:
        deadline = time.monotonic() + NAME_BUDGET
        while True:
            try:
                return self.engine.inspect(self.engine.create(self.part.spec))
            except NameTakenError as error:
                with contextlib.suppress(ContainerNotFoundError):
                    holder = self.engine.inspect(self.part.spec.name)
                    if carries(holder.labels, self.labels) and holder.state is not State.REMOVING:
                        return holder
                    if not carries(holder.labels, self.labels):
                        raise _foreign(holder, self.part) from error
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # ours, and on its way out

    def _up(self, container: Container) -> Container:
        """Start it when needed and return it once it is up.

        Raises:
            PartUnhealthyError: it ended, restarts, is unhealthy or is not up in time.
        """
        if not _runs(container):
            try:
                self.engine.start(container.id)
            except EngineUnavailableError:
                raise
            except EngineError as error:
                raise self._unhealthy(container, error.message) from error
        deadline = time.monotonic() + self.part.timeout
        pause = FIRST_POLL
        while True:
            try:
                now = self.engine.inspect(container.id)
            except ContainerNotFoundError as error:
                raise self._unhealthy(container, "it was removed while it started") from error
            if not _runs(now) or now.restarts > container.restarts:
                raise self._unhealthy(now, f"it ended (exit code {now.exit_code}, {now.restarts} restarts)")
            if now.health == "unhealthy":
                raise self._unhealthy(now, "its health check fails")
            if self._ready(now):
                return now
            if time.monotonic() > deadline:
                raise self._unhealthy(now, f"it was not healthy after {self.part.timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.5, LAST_POLL)

    def _ready(self, container: Container) -> bool:
        if not self.part.needs_health or container.health in ("", "healthy"):
            return True
        check = self.part.spec.healthcheck
        if check is None:
            return False
        # an engine checks for the first time after a whole interval; to ask ourselves is faster
        argv = ["sh", "-c", *check.test[1:]] if check.test[0] == "CMD-SHELL" else list(check.test)
        argv = argv[1:] if argv[0] == "CMD" else argv
        try:
            code, _ = self.engine.exec(container.id, argv, timeout=check.timeout)
        except (TimeoutError, EngineUnavailableError):
            return False
        except EngineError:  # it ended meanwhile: the next look says so
            return False
        return code == 0

    def _unhealthy(self, container: Container, reason: str) -> PartUnhealthyError:
        tail = ""
        with contextlib.suppress(EngineError):
            tail = self.engine.logs(container.id, tail=LOG_LINES).decode(errors="replace").strip()
        return PartUnhealthyError(
            f"The {self.part.kind} ({container.name}) did not come up: {reason}."
            + (f" The end of its log:\n{tail}" if tail else " Its log is empty."),
            next_step=f"`docker logs {container.name}` shows all of its log; `make up` tries again.",
        )


def _runs(container: Container) -> bool:
    return container.state is State.RUNNING


def _foreign(holder: Container, part: PartSpec) -> NameTakenError:
    return NameTakenError(
        f"The name {part.spec.name} of the {part.kind} is held by a container that is not this home's: "
        f"{holder.id[:12]} ({holder.state}).",
        next_step=f"Look at it with `docker inspect {holder.id[:12]}`; if nobody needs it: "
        f"`docker rm -f {holder.id[:12]}`.",
    )


@contextlib.contextmanager
def _role_lock(home: Home, kind: Kind, *, timeout: float) -> Iterator[None]:
    """Hold the kernel lock of a role; any death of its holder lets go of it.

    Raises:
        PartUnhealthyError: another process holds it for longer than a part may take to come up.
    """
    path = home.leases / f"part-{kind}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise PartUnhealthyError(
                        f"Another process has been bringing up the {kind} for {timeout:g} s.",
                        next_step=f"`fuser -v {path}` shows which one; end it and try again.",
                    ) from error
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)
