"""One container of the fake engine: what its program sees, and what a watch hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.base import (
    Container,
    ContainerSpec,
    Exited,
    Lost,
    Pending,
    Rejected,
    Running,
    State,
    WaitResult,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping


class ContainerKilledError(Exception):
    """Raised inside a program whose container was killed; it ends the program's thread."""


@dataclass(eq=False)
class ContainerRun:
    """What a program sees of its container, and what the fake engine keeps of it."""

    id: str
    spec: ContainerSpec
    container: Container
    changed: threading.Condition
    stdout: list[bytes] = field(default_factory=list)
    stderr: bytearray = field(default_factory=bytearray)
    log: list[bytes] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    started: bool = False
    removed: bool = False

    @property
    def env(self) -> Mapping[str, str]:
        """The container's environment."""
        return self.spec.env

    def path(self, target: str) -> Path:
        """Return the host's path behind a path in the container.

        Raises:
            FileNotFoundError: nothing is mounted there.
        """
        inside = Path(target)
        for mount in sorted(self.spec.mounts, key=lambda mount: len(mount.target), reverse=True):
            if inside.is_relative_to(mount.target):
                return Path(mount.source) / inside.relative_to(mount.target)
        raise FileNotFoundError(target)

    def out(self, line: str | bytes) -> None:
        """Print one line on stdout."""
        data = line.encode() if isinstance(line, str) else line
        with self.changed:
            self._check()
            self.stdout.append(data)
            self.log.append(data + b"\n")
            self.changed.notify_all()

    def err(self, text: str | bytes) -> None:
        """Write on stderr."""
        data = text.encode() if isinstance(text, str) else text
        with self.changed:
            self._check()
            self.stderr += data
            self.log.append(data)

    def sleep(self, seconds: float) -> None:
        """Sleep, until a signal comes (then look at ``signals``).

        Raises:
            ContainerKilledError: the container was killed.
        """
        with self.changed:
            known = len(self.signals)
            self.changed.wait_for(lambda: len(self.signals) > known or self.ended, seconds)
            self._check()

    def oom(self) -> None:
        """Report an out-of-memory event, as the kernel does when it kills one of the container's processes."""
        with self.changed:
            self.container = replace(self.container, oom_killed=True)

    def health(self, status: str) -> None:
        """Set what the health check says: "starting", "healthy" or "unhealthy"."""
        with self.changed:
            self.container = replace(self.container, health=status)

    @property
    def ended(self) -> bool:
        """Whether it has exited or was removed."""
        return self.removed or self.container.state is State.EXITED

    def _check(self) -> None:
        if self.ended:
            raise ContainerKilledError(self.spec.name)


class FakeWatch:
    """See ``base.Watch``."""

    def __init__(self, run: ContainerRun, line_limit: int) -> None:
        self._run = run
        self._limit = line_limit
        self._changed = run.changed
        self._closed = False
        self._position = 0

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of stdout as they come."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._more() or self._run.ended or self._closed)
                if self._closed or not self._more():
                    return
                line = self._run.stdout[self._position]
                self._position += 1
            yield line[: self._limit]

    def _more(self) -> bool:
        return len(self._run.stdout) > self._position

    def stderr_tail(self) -> bytes:
        """Return the last 64 KiB of stderr."""
        with self._changed:
            return bytes(self._run.stderr[-65536:])

    def wait(self, timeout: float | None = None) -> WaitResult:
        """Return how the container ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._run.ended or self._closed, timeout)
            container = self._run.container
            if container.exit_code is not None:
                return Exited(container.exit_code, oom=container.oom_killed)
            if self._run.removed:
                return Lost(f"{container.name}: removed") if self._run.started else Rejected("never started")
            return Running(container.name) if self._run.started else Pending("created and not started")

    def close(self) -> None:
        """Stop listening."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
