"""What the school asks of a container engine, and the plain values it gets back.

The protocol is synchronous: the principal drives one bead in one thread and listens in others. Everything
here is a frozen value or a method; nothing knows Docker. ``engine.docker`` and ``engine.fake`` implement it and
run the same conformance suite (tests/conformance).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class Kind(StrEnum):
    """Value of the label ``school.kind``."""

    LEAF = "leaf"
    VERIFY = "verify"
    PROBE = "probe"
    BUILD = "build"
    OMNIROUTE = "omniroute"
    GATE = "gate"
    REHEARSAL = "rehearsal"
    TEACHER_CTO = "teacher-cto"
    TEACHER_COO = "teacher-coo"


LABEL_HOME = "school.home"
LABEL_BEAD = "school.bead"
LABEL_KIND = "school.kind"
LABEL_DEADLINE = "school.deadline"  # epoch seconds, integer
LABEL_SPEC = "school.spec"  # digest of the spec a standing part was made from
LABEL_CONTENT = "school.content"  # digest of an image's inputs


@dataclass(frozen=True, slots=True)
class Mount:
    """One bind mount, made through the engine's Mounts API so that a missing source is an error."""

    source: str
    target: str
    read_only: bool = False
    type: str = "bind"  # "bind" or "volume"


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """A command the engine runs inside; times in seconds."""

    test: tuple[str, ...]
    interval: float = 2.0
    timeout: float = 3.0
    start_period: float = 20.0
    retries: int = 15


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything a container is allowed and made of. Sizes in bytes, times in seconds."""

    image: str
    name: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    tmpfs: Mapping[str, str] = field(default_factory=dict)  # target -> options
    working_dir: str = ""
    user: str = ""
    hostname: str = ""
    network: str = "none"  # "none" or a network's name
    network_aliases: tuple[str, ...] = ()
    publish: Mapping[int, tuple[str, int]] = field(default_factory=dict)  # container port -> (host ip, host port or 0)
    read_only: bool = True
    cap_drop: tuple[str, ...] = ("ALL",)
    cap_add: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ("no-new-privileges:true",)
    pids_limit: int | None = None
    memory: int | None = None  # memory and swap together: swap is never added
    cpus: float | None = None
    ulimits: Mapping[str, int] = field(default_factory=dict)  # soft = hard
    log_max_size: str = "10m"
    log_max_files: int = 1
    auto_remove: bool = False
    restart: str = "no"  # "no" or "unless-stopped"
    runtime: str | None = None
    userns_mode: str = ""
    stop_timeout: int = 5
    healthcheck: Healthcheck | None = None
    shm_size: int | None = None


class State(StrEnum):
    """A container's state, in the engine's own words."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Container:
    """What the engine says of a container."""

    id: str
    name: str
    state: State
    labels: Mapping[str, str]
    image: str = ""  # image id
    exit_code: int | None = None
    oom_killed: bool = False
    health: str = ""  # "", "starting", "healthy", "unhealthy"
    ports: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    created: float = 0.0  # epoch seconds
    pid: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """What the engine says of an image."""

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    size: int = 0
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine as it describes itself."""

    endpoint: str
    version: str
    api_version: str
    os: str
    kernel: str
    cgroup_version: str
    storage_driver: str
    root_dir: str
    rootless: bool
    userns_remap: bool
    cpus: int
    memory: int
    runtimes: tuple[str, ...]
    product: str = "docker"  # or "podman"


# -- what wait() answers: a seam for engines that schedule (DESIGN, "Two seams") ---------------------------------


@dataclass(frozen=True, slots=True)
class Pending:
    """Accepted and not running yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class Running:
    """Still running."""

    where: str


@dataclass(frozen=True, slots=True)
class Exited:
    """Ended with this code. ``oom`` is whether the engine reported an out-of-memory event for it."""

    code: int
    oom: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """The engine will not run it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows any more. ``where`` is the last place it was known."""

    where: str


WaitResult = Pending | Running | Exited | Rejected | Lost


@dataclass(frozen=True, slots=True)
class Gone:
    """Looked for after the removal, and not there."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """May still be there."""

    where: str


Removal = Gone | Unconfirmed


class Watch(Protocol):
    """Listens to one container from before its start: output, exit and out-of-memory.

    Made by ``Engine.watch`` after create and before start; nothing is lost when the container removes itself.
    """

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of stdout as they come, without newline; ends when the container's output ends.

        A line longer than the limit given to ``watch`` is cut there. Stderr is kept apart, see ``stderr_tail``.
        """
        ...

    def stderr_tail(self) -> bytes:
        """Return the last 64 KiB of stderr."""
        ...

    def wait(self, timeout: float | None = None) -> WaitResult:
        """Return how the container ended, or ``Running``/``Pending`` after ``timeout`` seconds."""
        ...

    def close(self) -> None:
        """Stop listening. Idempotent; ends a blocked ``lines()`` and ``wait()`` too."""
        ...


@runtime_checkable
class Engine(Protocol):
    """A container engine. Every method may raise EngineUnavailableError or EnginePermissionError."""

    def info(self) -> EngineInfo:
        """Describe the engine."""
        ...

    def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id.

        Raises:
            ImageMissingError: the image is not there.
            NameTakenError: a container of that name exists.
            MountRefusedError: a mount's source is missing.
        """
        ...

    def start(self, container: str) -> None:
        """Start it.

        Raises:
            ContainerNotFoundError: it is not there.
            EngineError: the engine could not start it; the message holds the engine's reason.
        """
        ...

    def watch(self, container: str, *, line_limit: int = 65536) -> Watch:
        """Listen to a created container. Returns once the engine is known to be listening too."""
        ...

    def inspect(self, container: str) -> Container:
        """Return what the engine knows of it.

        Raises:
            ContainerNotFoundError: it is not there.
        """
        ...

    def list(self, labels: Mapping[str, str], *, all: bool = True) -> Sequence[Container]:  # noqa: A002
        """Return the containers that carry exactly these labels (an empty value matches any value)."""
        ...

    def logs(self, container: str, *, tail: int = 200) -> bytes:
        """Return the end of its output, stdout and stderr together."""
        ...

    def stop(self, container: str, *, grace: int = 5) -> None:
        """Ask it to end, and end it after ``grace`` seconds. Not there, or not running: nothing happens."""
        ...

    def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal. Not there, or not running: nothing happens."""
        ...

    def remove(self, container: str, *, force: bool = True, timeout: float = 10.0) -> Removal:
        """Remove it, its anonymous volumes too, and look again. Never raises for "not there" or "in progress"."""
        ...

    def exec(self, container: str, argv: Sequence[str], *, user: str = "", timeout: float = 30.0) -> tuple[int, bytes]:
        """Run a command inside; return its exit code and its output."""
        ...

    def rename(self, container: str, name: str) -> None:
        """Give it another name."""
        ...

    def image(self, reference: str) -> Image | None:
        """Return an image, or None."""
        ...

    def images(self, labels: Mapping[str, str]) -> Sequence[Image]:
        """Return the images that carry these labels."""
        ...

    def build(
        self,
        context: bytes,
        *,
        tag: str,
        build_args: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        dockerfile: str = "Dockerfile",
        network: str = "default",
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        """Build an image from a tar archive and return its id.

        Raises:
            ImageBuildError: with the end of the build's output.
        """
        ...

    def pull(self, reference: str, *, on_line: Callable[[str], None] | None = None) -> str:
        """Pull an image and return its id.

        Raises:
            ImageMissingError: it could not be pulled.
        """
        ...

    def import_image(self, archive: str, *, tag: str, changes: Sequence[str] = ()) -> str:
        """Make an image from a tar archive of a root file system (a path on the host)."""
        ...

    def tag(self, image: str, reference: str) -> None:
        """Give an image another name."""
        ...

    def remove_image(self, reference: str, *, force: bool = False) -> None:
        """Remove an image; not there: nothing happens."""
        ...

    def ensure_network(self, name: str, *, labels: Mapping[str, str], internal: bool = False) -> str:
        """Return the id of the bridge network of that name, made when missing."""
        ...

    def remove_network(self, name: str) -> None:
        """Remove a network; not there: nothing happens."""
        ...

    def ensure_volume(self, name: str, *, labels: Mapping[str, str]) -> None:
        """Make a named volume when missing."""
        ...

    def remove_volume(self, name: str) -> None:
        """Remove a named volume; not there: nothing happens."""
        ...

    def events(
        self, labels: Mapping[str, str], *, since: float | None = None
    ) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Yield (container id, action, attributes) of containers with these labels, for ever."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
