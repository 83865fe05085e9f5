"""The gate's control API, from the host. Standard library, sync; one connection per call."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from orchestrator.errors import GatewayError, GatewayUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.home import Home

TIMEOUT = 15.0  # seconds


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket of any path length (the kernel's limit is 108 characters)."""

    def __init__(self, path: Path, *, timeout: float = TIMEOUT) -> None:
        super().__init__("gate", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect through the folder's descriptor, which keeps the address short.

        Raises:
            OSError: nothing listens there.
        """
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.settimeout(self.timeout)
            client.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        except OSError:
            client.close()
            raise
        finally:
            os.close(folder)
        self.sock = client


class GateClient:
    """Talks to the gate of one home."""

    def __init__(self, home: Home) -> None:
        self._root = home.gate

    @property
    def control_socket(self) -> Path:
        """The control socket."""
        return self._root / "control" / "control.sock"

    def folder(self, grant: str) -> Path:
        """Return the folder of a grant's socket on the host: what a container mounts."""
        return self._root / "sockets" / grant

    def health(self) -> dict[str, Any]:
        """Return what the gate says of itself.

        Raises:
            GatewayUnavailableError: it does not answer.
        """
        return dict(self._call("GET", "/health"))

    def grant(
        self,
        grant: str,
        *,
        kind: str,
        key: str,
        models: Sequence[str],
        bead: str | None = None,
        limits: Mapping[str, float | None] | None = None,
        prices: Mapping[str, Mapping[str, float] | None] | None = None,
        deadline: float | None = None,
        rehearsal_models: Sequence[str] = (),
        egress: Sequence[str] = (),
        egress_bytes: int | None = None,
    ) -> Path:
        """Make a grant or change it; return the folder of its socket.

        Raises:
            GatewayUnavailableError: the gate does not answer.
            GatewayError: it refused the terms.
        """
        body = {
            "kind": kind,
            "bead": bead,
            "key": key,
            "models": list(models),
            "limits": dict(limits or {}),
            "prices": dict(prices or {}),
            "deadline": deadline,
            "rehearsal_models": list(rehearsal_models),
            "egress": list(egress),
            "egress_bytes": egress_bytes,
        }
        answer = self._call("PUT", f"/grants/{quote(grant, safe='')}", body)
        return (self._root / str(answer["socket"])).parent

    def revoke(self, grant: str) -> dict[str, Any] | None:
        """Revoke a grant; return its final usage, also the second time; None when the gate never knew it."""
        return self._optional("DELETE", grant)

    def usage(self, grant: str) -> dict[str, Any] | None:
        """Return a grant's usage, or None."""
        return self._optional("GET", grant)

    def grants(self) -> list[dict[str, Any]]:
        """Return the usage of every living grant."""
        return list(self._call("GET", "/grants"))

    def limit_day(self, limits: Mapping[str, float | None]) -> dict[str, Any]:
        """Set what all grants together may use in a day (UTC); return what is used, and ``near`` or past a limit.

        Raises:
            GatewayUnavailableError: the gate does not answer.
        """
        return dict(self._call("PUT", "/day", dict(limits)))

    def log(self, *, grant: str | None = None, bead: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return log entries, the newest last."""
        query = {"grant": grant, "bead": bead, "limit": limit}
        return list(self._call("GET", "/log?" + urlencode({k: v for k, v in query.items() if v is not None})))

    def _optional(self, method: str, grant: str) -> dict[str, Any] | None:
        answer = self._call(method, f"/grants/{quote(grant, safe='')}", missing_ok=True)
        return None if answer is None else dict(answer)

    def _call(self, method: str, path: str, body: Any = None, *, missing_ok: bool = False) -> Any:
        try:
            with contextlib.closing(UnixConnection(self.control_socket)) as connection:
                content = None if body is None else json.dumps(body).encode()
                connection.request(method, path, body=content, headers={"Content-Type": "application/json"})
                answer = connection.getresponse()
                data = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise GatewayUnavailableError(
                f"The gate does not answer at {self.control_socket}: {error}",
                next_step="school up starts it; school logs gate shows its output.",
            ) from error
        if answer.status == http.client.NOT_FOUND and missing_ok:
            return None
        if answer.status not in {http.client.OK, http.client.CREATED}:
            detail = data.get("error", {}).get("message", "") if isinstance(data, dict) else ""
            raise GatewayError(f"The gate refused {method} {path} ({answer.status}): {detail}")
        return data
