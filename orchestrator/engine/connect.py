"""The one place where an engine is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.engine.base import Engine


def connect(endpoint: str | None = None) -> Engine:
    """Return the engine at an address, or the one this host's settings name. Nothing is asked of it yet.

    Args:
        endpoint: ``unix:///…``, ``tcp://…`` or ``ssh://…``; default: DOCKER_HOST, then the default socket.
    """
    from docker.utils import kwargs_from_env  # noqa: PLC0415 - costs 29 MB: only who talks to an engine pays

    from orchestrator.engine.docker import DockerEngine  # noqa: PLC0415

    found = kwargs_from_env()  # knows DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH
    address = endpoint or found.get("base_url") or "unix:///var/run/docker.sock"
    return DockerEngine(address, tls=found.get("tls") if address == found.get("base_url") else None)
