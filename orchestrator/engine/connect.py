"""The one place where an engine is chosen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.locate import candidates, locate

if TYPE_CHECKING:
    from docker.tls import TLSConfig

    from orchestrator.engine.base import Engine


def connect(endpoint: str | None = None) -> Engine:
    """Return the engine at an address, or the one that ``locate`` finds on this host.

    Args:
        endpoint: ``unix:///…``, ``tcp://…`` or ``ssh://…``, taken at its word: it is asked at the first call.

    Raises:
        EngineUnavailableError: no endpoint was given, and no engine answers.
        EnginePermissionError: there is one, and this user may not open its socket.
    """
    from orchestrator.engine.docker import DockerEngine  # noqa: PLC0415 - the SDK costs 29 MB

    found = locate() if endpoint is None else candidates({**os.environ, "DOCKER_HOST": endpoint})[0]
    return DockerEngine(found.endpoint, tls=_tls(found.tls_folder))


def _tls(folder: str) -> TLSConfig | None:
    if not folder:
        return None
    from docker.tls import TLSConfig  # noqa: PLC0415

    files = {name: str(Path(folder) / f"{name}.pem") for name in ("ca", "cert", "key")}
    return TLSConfig(client_cert=(files["cert"], files["key"]), ca_cert=files["ca"], verify=True)
