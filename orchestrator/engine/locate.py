"""Finding the container engine of this host. Standard library only: it also runs before the package is installed.

The order is the docker client's own: ``DOCKER_HOST``, then the current docker context, then the sockets at
their usual places. What the person named is taken at its word: when it does not answer, that is an error, and no
other engine is used behind their back.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import http
import http.client
import json
import os
import shlex
import socket
import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.errors import EngineError, EnginePermissionError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBE_SECONDS = 5.0
_LIMIT = 108  # bytes of a Unix socket's path, on Linux


class Answer(StrEnum):
    """What happened when an address was tried."""

    ALIVE = "answers"
    NO_SOCKET = "there is no socket"
    PERMISSION = "this user may not open the socket"
    SILENT = "the socket is there and nothing answers"
    UNREACHABLE = "it can't be reached"


@dataclass(frozen=True, slots=True)
class Located:
    """An engine that answers: its address, where the address came from, and TLS files for ``tcp://``."""

    endpoint: str
    source: str
    tls_folder: str = ""  # folder with ca.pem, cert.pem and key.pem, or ""

    def __str__(self) -> str:
        return f"{self.endpoint} ({self.source})"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An address to try. ``named`` says that the person chose it: nothing else is tried after it."""

    endpoint: str
    source: str
    named: bool = False
    tls_folder: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """What was tried, in order, and what each answered."""

    tried: tuple[tuple[Candidate, Answer], ...] = ()
    found: Located | None = None
    named: bool = False

    def error(self) -> EngineError:
        """Return the error that tells the person what to do, for a search that found nothing."""
        for candidate, answer in self.tried:
            if answer is Answer.PERMISSION:
                return EnginePermissionError(
                    f"The engine's socket {candidate.endpoint} ({candidate.source}) is there and user {_user()} "
                    "may not open it.",
                    next_step=f"Join the socket's group: `sudo usermod -aG docker {shlex.quote(_user())}`, then log in "
                    "again (or `newgrp docker` in this terminal). Members of that group are as powerful as root.",
                )
        if self.named:
            candidate, answer = self.tried[0]
            return EngineUnavailableError(
                f"{candidate.source} names the engine {candidate.endpoint}, and {answer.value}.",
                next_step="Start that engine, correct the address, or take it away: `unset DOCKER_HOST` "
                "(`docker context use default` for a context).",
            )
        for candidate, answer in self.tried:
            if answer is Answer.SILENT:
                return EngineUnavailableError(
                    f"The engine's socket {candidate.endpoint} is there and nothing answers: the engine is stopped.",
                    next_step="Start it: `sudo systemctl start docker` (without systemd: `sudo dockerd &`).",
                )
        places = ", ".join(candidate.endpoint for candidate, _ in self.tried)
        return EngineUnavailableError(
            f"No container engine was found (looked at {places}; DOCKER_HOST is not set).",
            next_step="Install one: `sudo apt-get install docker.io` on Debian or Ubuntu, else see your "
            "system's documentation; or set DOCKER_HOST to one that runs elsewhere.",
        )


def locate(environment: Mapping[str, str] = os.environ) -> Located:
    """Return the engine to use.

    Raises:
        EngineUnavailableError: none answers, or the one that was named does not.
        EnginePermissionError: there is one, and this user may not open its socket.
    """
    result = search(environment)
    if result.found:
        return result.found
    raise result.error()


def search(environment: Mapping[str, str] = os.environ) -> Search:
    """Try the candidates in order, and stop at the first that answers or that the person named."""
    tried: list[tuple[Candidate, Answer]] = []
    for candidate in candidates(environment):
        answer = probe(candidate)
        tried.append((candidate, answer))
        if answer is Answer.ALIVE:
            found = Located(candidate.endpoint, candidate.source, candidate.tls_folder)
            return Search(tuple(tried), found, candidate.named)
        if candidate.named:
            break
    return Search(tuple(tried), None, tried[-1][0].named)


def candidates(environment: Mapping[str, str]) -> list[Candidate]:
    """Return the addresses to try, best first."""
    if host := environment.get("DOCKER_HOST"):
        tls = environment.get("DOCKER_CERT_PATH", "~/.docker") if environment.get("DOCKER_TLS_VERIFY") else ""
        return [
            Candidate(_normal(host), "DOCKER_HOST", named=True, tls_folder=str(Path(tls).expanduser()) if tls else "")
        ]
    if context := _context(environment):
        return [context]
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    home = Path(environment.get("HOME") or "~").expanduser()
    places = {
        "/var/run/docker.sock": "the usual socket",
        f"{runtime}/docker.sock": "a rootless engine of this user",
        f"{home}/.docker/run/docker.sock": "Docker Desktop's socket",
        f"{home}/.docker/desktop/docker.sock": "Docker Desktop's socket",
        f"{runtime}/podman/podman.sock": "Podman of this user",
        "/run/podman/podman.sock": "the system's Podman",
    }
    return [Candidate(f"unix://{path}", source) for path, source in places.items()]


def probe(candidate: Candidate, *, timeout: float = PROBE_SECONDS) -> Answer:
    """Ask an address for its ``/_ping``."""
    parts = urlsplit(candidate.endpoint)
    if parts.scheme == "ssh":
        return Answer.ALIVE  # the docker client opens the tunnel; it alone can tell
    if parts.scheme == "unix":
        return _probe_socket(parts.path, timeout)
    if parts.scheme in {"tcp", "http", "https"} and parts.hostname:
        return _probe_tcp(parts.hostname, parts.port or 2375, candidate.tls_folder, timeout)
    return Answer.UNREACHABLE


def _probe_socket(path: str, timeout: float) -> Answer:
    if len(os.fsencode(path)) >= _LIMIT:
        return Answer.UNREACHABLE
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(path)
        except (FileNotFoundError, NotADirectoryError):
            return Answer.NO_SOCKET
        except PermissionError:
            return Answer.PERMISSION
        except OSError:
            return Answer.SILENT
        return Answer.ALIVE if _pings(connection) else Answer.SILENT


def _probe_tcp(host: str, port: int, tls_folder: str, timeout: float) -> Answer:
    try:
        with contextlib.closing(socket.create_connection((host, port), timeout)) as plain:
            if not tls_folder:
                return Answer.ALIVE if _pings(plain) else Answer.SILENT
            folder = Path(tls_folder)
            context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            context.load_cert_chain(str(folder / "cert.pem"), str(folder / "key.pem"))
            with contextlib.closing(context.wrap_socket(plain, server_hostname=host)) as secure:
                return Answer.ALIVE if _pings(secure) else Answer.SILENT
    except OSError:  # TLS errors are among them
        return Answer.UNREACHABLE


def _pings(connection: socket.socket) -> bool:
    """Whether an engine is at the other end: any answer in HTTP to ``/_ping`` will do."""
    try:
        connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")
        with contextlib.closing(http.client.HTTPResponse(connection)) as response:
            response.begin()
            return response.status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def _context(environment: Mapping[str, str]) -> Candidate | None:
    """Return the current docker context's address; None for the default context, and where there is none.

    Raises:
        EngineUnavailableError: the context that is current does not exist, or names no address.
    """
    home = Path(environment.get("HOME") or "~").expanduser()
    folder = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    name, source = environment.get("DOCKER_CONTEXT", ""), "DOCKER_CONTEXT"
    if not name:
        name, source = str(_json(folder / "config.json").get("currentContext") or ""), str(folder / "config.json")
    if name in {"", "default"}:
        return None
    stored = hashlib.sha256(name.encode()).hexdigest()
    endpoint = _json(folder / "contexts" / "meta" / stored / "meta.json").get("Endpoints", {}).get("docker", {})
    if not endpoint.get("Host"):
        raise EngineUnavailableError(
            f"The docker context {name!r} (from {source}) does not exist or has no address.",
            next_step="Choose another: `docker context use default`, or `unset DOCKER_CONTEXT`.",
        )
    tls = folder / "contexts" / "tls" / stored / "docker"
    return Candidate(
        _normal(str(endpoint["Host"])),
        f"docker context {name}",
        named=True,
        tls_folder=str(tls) if tls.is_dir() else "",
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}  # the docker client too goes on without a file that it can't read
    return data if isinstance(data, dict) else {}


def _normal(host: str) -> str:
    """Return an address with its scheme: docker takes ``host:port`` and ``/path`` too."""
    if host.startswith("/"):
        return f"unix://{host}"
    return host if "://" in host else f"tcp://{host}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a passwd entry
        return str(os.getuid())
