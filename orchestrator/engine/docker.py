"""The engine over Docker's API (Docker 20.10 to 29, and Podman's Docker-compatible socket).

Calls are bounded in time, streams are not. Safe to use from any number of threads. Errors are those of
``orchestrator.errors``; which text of the engine becomes which error is in ``docker_errors``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import (
    Container,
    ContainerSpec,
    EngineInfo,
    Gone,
    Removal,
    Unconfirmed,
    Watch,
)
from orchestrator.engine.docker_client import CALL_TIMEOUT, ClientPool
from orchestrator.engine.docker_images import DockerImages
from orchestrator.engine.docker_spec import (
    container_from,
    create_payload,
    filters_json,
    label_filters,
)
from orchestrator.engine.docker_watch import DockerWatch
from orchestrator.engine.labels import carries
from orchestrator.errors import ContainerNotFoundError, EngineError, EngineServerError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from docker.tls import TLSConfig

EXEC_OUTPUT = 4 * 1024 * 1024  # bytes of a command's output that are kept


class DockerEngine(DockerImages):
    """See ``base.Engine``; each method's contract is written there.

    Args:
        endpoint: The engine's address: ``unix:///…``, ``tcp://…`` or ``ssh://…``.
        tls: Client certificates for ``tcp://``.
        timeout: Longest wait for the answer to an ordinary call, in seconds.
    """

    def __init__(self, endpoint: str, *, tls: TLSConfig | None = None, timeout: int = CALL_TIMEOUT) -> None:
        self.endpoint = endpoint
        self._clients = ClientPool(endpoint, tls=tls, timeout=timeout)

    def info(self) -> EngineInfo:
        """Describe the engine."""
        with self._clients.borrow("describe itself") as client:
            info, version = client.info(), client.version()
        options = " ".join(info.get("SecurityOptions") or ())
        components = " ".join(part.get("Name", "") for part in version.get("Components") or ())
        return EngineInfo(
            endpoint=self.endpoint,
            version=version["Version"],
            api_version=version["ApiVersion"],
            os=info.get("OperatingSystem", ""),
            kernel=info.get("KernelVersion", ""),
            cgroup_version=str(info.get("CgroupVersion") or "1"),
            storage_driver=info.get("Driver", ""),
            root_dir=info.get("DockerRootDir", ""),
            rootless="name=rootless" in options,
            userns_remap="name=userns" in options,
            cpus=info.get("NCPU", 0),
            memory=info.get("MemTotal", 0),
            runtimes=tuple(sorted(info.get("Runtimes") or ())),
            product="podman" if "podman" in components.lower() else "docker",
        )

    # -- one container's life --------------------------------------------------------------------------------

    def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id."""
        with self._clients.borrow(f"create the container {spec.name}") as client:
            answer = client.create_container_from_config(create_payload(spec), spec.name)  # type: ignore[no-untyped-call]
        return str(answer["Id"])

    def start(self, container: str) -> None:
        """Start it."""
        with self._clients.borrow(f"start the container {container}") as client:
            client.start(container)

    def watch(self, container: str, *, line_limit: int = 65536) -> Watch:
        """Listen to a created container (or to one that runs: what it printed before comes first)."""
        return DockerWatch(self._clients, self.inspect, self.inspect(container), line_limit=line_limit)

    def inspect(self, container: str) -> Container:
        """Return what the engine knows of it."""
        with self._clients.borrow(f"inspect the container {container}") as client:
            return container_from(client.inspect_container(container))

    def list(self, labels: Mapping[str, str], *, all: bool = True) -> Sequence[Container]:  # noqa: A002
        """Return the containers that carry exactly these labels."""
        with self._clients.borrow("list containers") as client:
            found = client.containers(all=all, filters={"label": label_filters(labels)})
        containers = []
        for summary in found:
            if carries(summary.get("Labels") or {}, labels):
                with contextlib.suppress(ContainerNotFoundError):  # removed since it was listed
                    containers.append(self.inspect(summary["Id"]))
        return containers

    def logs(self, container: str, *, tail: int = 200) -> bytes:
        """Return the end of its output, stdout and stderr together."""
        with self._clients.borrow(f"read the log of the container {container}") as client:
            return bytes(client.logs(container, stdout=True, stderr=True, tail=tail))

    def stop(self, container: str, *, grace: int = 5) -> None:
        """Ask it to end, and end it after ``grace`` seconds."""
        with (
            contextlib.suppress(ContainerNotFoundError),
            self._clients.borrow(f"stop the container {container}") as client,
        ):
            client.stop(container, timeout=grace)

    def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal."""
        try:
            with self._clients.borrow(f"kill the container {container}") as client:
                client.kill(container, signal)
        except ContainerNotFoundError:
            pass
        except EngineError as error:
            if "is not running" not in error.message:
                raise

    def remove(self, container: str, *, force: bool = True, timeout: float = 10.0) -> Removal:
        """Remove it, its anonymous volumes too, and look again until it is gone or the time is up."""
        deadline = time.monotonic() + timeout
        pause, reason = 0.01, ""
        while True:
            try:
                reason = self._ask_removal(container, force=force)
                self.inspect(container)
            except ContainerNotFoundError:
                return Gone()
            except (EngineServerError, EngineUnavailableError) as error:
                reason = error.message
            if time.monotonic() + pause > deadline:
                return Unconfirmed(f"{container} at {self.endpoint}: {reason or 'still listed'}")
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def _ask_removal(self, container: str, *, force: bool) -> str:
        """Ask once; return the engine's reason when it did not do it, or nothing."""
        try:
            with self._clients.borrow(f"remove the container {container}") as client:
                client.remove_container(container, v=True, force=force)
        except (ContainerNotFoundError, EngineServerError, EngineUnavailableError):
            raise
        except EngineError as error:  # 409: in progress already, or running and not forced
            return error.message
        return ""

    def exec(self, container: str, argv: Sequence[str], *, user: str = "", timeout: float = 30.0) -> tuple[int, bytes]:
        """Run a command inside; return its exit code and its output (4 MiB of it at most).

        Raises:
            TimeoutError: it did not end in time. The API can't end it: it goes on inside the container.
            EngineError: the container does not run.
        """
        doing = f"run {argv[0]} in the container {container}"
        with self._clients.borrow(doing) as client:
            created = client.exec_create(container, list(argv), user=user)["Id"]
        stream = self._clients.stream(
            "POST", f"/exec/{created}/start", doing=doing, body={"Detach": False, "Tty": False}
        )
        late = threading.Timer(timeout, stream.close)
        late.daemon = True
        late.start()
        output = bytearray()
        try:
            for _, data in stream.frames():
                output += data[: max(0, EXEC_OUTPUT - len(output))]
            if stream.closed:
                raise TimeoutError(f"{argv[0]} in the container {container} ran for more than {timeout} s.")
        finally:
            late.cancel()
            stream.close()
        with self._clients.borrow(doing) as client:
            code = client.exec_inspect(created)["ExitCode"]
        return (-1 if code is None else int(code)), bytes(output)

    def rename(self, container: str, name: str) -> None:
        """Give it another name."""
        with self._clients.borrow(f"rename the container {container} to {name}") as client:
            client.rename(container, name)

    # -- networks and volumes --------------------------------------------------------------------------------

    def ensure_network(self, name: str, *, labels: Mapping[str, str], internal: bool = False) -> str:
        """Return the id of the bridge network of that name, made when missing."""
        if found := self._network(name):
            return found
        try:
            with self._clients.borrow(f"create the network {name}") as client:
                answer = client.create_network(
                    name, driver="bridge", internal=internal, labels=dict(labels), check_duplicate=True
                )
            return str(answer["Id"])
        except EngineError as error:
            if "already exists" in error.message and (found := self._network(name)):
                return found  # another process was first
            raise

    def _network(self, name: str) -> str | None:
        with self._clients.borrow(f"look for the network {name}") as client:
            found = client.networks(names=[name])  # the filter matches parts of names
        return next((str(network["Id"]) for network in found if network["Name"] == name), None)

    def remove_network(self, name: str) -> None:
        """Remove a network; not there: nothing happens."""
        if found := self._network(name):
            try:
                with self._clients.borrow(f"remove the network {name}") as client:
                    client.remove_network(found)
            except EngineError as error:
                if "not found" not in error.message:
                    raise

    def ensure_volume(self, name: str, *, labels: Mapping[str, str]) -> None:
        """Make a named volume when missing."""
        with self._clients.borrow(f"create the volume {name}") as client:
            client.create_volume(name, labels=dict(labels))

    def remove_volume(self, name: str) -> None:
        """Remove a named volume; not there: nothing happens."""
        try:
            with self._clients.borrow(f"remove the volume {name}") as client:
                client.remove_volume(name)
        except EngineError as error:
            if "no such volume" not in error.message.lower():
                raise

    # -- all of them -----------------------------------------------------------------------------------------

    def events(
        self, labels: Mapping[str, str], *, since: float | None = None
    ) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Yield (container id, action, attributes) of containers with these labels.

        Raises:
            EngineUnavailableError: the engine went away: list again, then listen again.
        """
        filters = {"type": ["container"], "label": label_filters(labels)}
        params: dict[str, Any] = {"filters": filters_json(filters)}
        if since is not None:
            params["since"] = f"{since:.9f}"
        stream = self._clients.stream("GET", "/events", params, doing="listen to events")
        try:
            for event in stream.objects():
                attributes = event["Actor"].get("Attributes") or {}
                if carries(attributes, labels):
                    yield event["Actor"]["ID"], event["Action"], attributes
            if not stream.closed:
                raise EngineUnavailableError(
                    f"The engine at {self.endpoint} ended its stream of events.",
                    next_step="It was stopped or restarted; `school doctor` looks at it.",
                )
        finally:
            stream.close()

    def close(self) -> None:
        """Cut every stream and let go of connections."""
        self._clients.close()
