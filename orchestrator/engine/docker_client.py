"""Connections to one Docker-compatible engine: a stack of SDK clients, and streams that can be cut from outside.

One ``APIClient`` is a requests session, which two threads should not use at once. A call borrows a client and
gives it back; a stream keeps only its own connection, so a hundred blocked streams hold no client.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

from orchestrator.engine.docker_errors import translated
from orchestrator.errors import EngineError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from docker.api.client import APIClient
    from docker.tls import TLSConfig
    from requests import Response

MIN_API = (1, 41)  # engine 20.10
MAX_API = (1, 49)  # the newest this was written against; newer engines speak it as well
CALL_TIMEOUT = 60  # seconds; an engine under load was seen to need 30


class ClientPool:
    """Lends SDK clients of one engine to any number of threads."""

    def __init__(self, endpoint: str, *, tls: TLSConfig | None = None, timeout: int = CALL_TIMEOUT) -> None:
        self.endpoint = endpoint
        self._tls = tls
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: list[APIClient] = []
        self._streams: set[Stream] = set()
        self._version = ""

    @contextlib.contextmanager
    def borrow(self, doing: str) -> Iterator[APIClient]:
        """Lend a client for one call; what the call raises comes out as an error of ours.

        Args:
            doing: What is asked for, as the error's message will say it: "remove the container x".

        Raises:
            EngineError: or one of its subclasses.
        """
        with translated(self.endpoint, doing):
            self._knock()
            client = self._take()
            try:
                yield client
            finally:
                with self._lock:
                    self._idle.append(client)

    def _take(self) -> APIClient:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        if not self._version:
            self._version = self._negotiate()
        return self._client(self._version)

    def _client(self, version: str) -> APIClient:
        from docker.api.client import APIClient  # noqa: PLC0415 - see docker_errors.translated

        return APIClient(
            base_url=self.endpoint,
            version=version,
            timeout=self._timeout,
            tls=self._tls or False,
            use_ssh_client=True,
        )

    def _negotiate(self) -> str:
        oldest = ".".join(map(str, MIN_API))
        client = self._client(oldest)
        try:
            answer = client.version(api_version=False)
        finally:
            client.close()
        newest = _numbers(answer["ApiVersion"])
        if newest < MIN_API:
            raise EngineError(
                f"The engine at {self.endpoint} speaks API {answer['ApiVersion']}; {oldest} is needed.",
                next_step="Use Docker Engine 20.10 or newer.",
            )
        lowest = _numbers(answer.get("MinAPIVersion") or oldest)
        return ".".join(map(str, max(min(newest, MAX_API), lowest)))

    def _knock(self) -> None:
        """Open the engine's socket for a moment: 0.1 ms, and the SDK leaks its own socket where nobody answers."""
        if self.endpoint.startswith("unix://"):
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as knocking:
                knocking.settimeout(self._timeout)
                knocking.connect(self.endpoint.removeprefix("unix://"))

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        doing: str,
        body: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Open an answer without an end, and return once the engine has sent its headers.

        Raises:
            EngineError: or one of its subclasses.
        """
        with self.borrow(doing) as client:
            url = f"{client.base_url}/v{client.api_version}{path}"
            response = client.request(method, url, params=params, json=body, stream=True, timeout=self._timeout)
            if response.status_code >= 400:
                from docker.errors import create_api_error_from_http_exception  # noqa: PLC0415
                from requests.exceptions import HTTPError  # noqa: PLC0415

                try:
                    response.raise_for_status()
                except HTTPError as error:
                    create_api_error_from_http_exception(error)
                finally:
                    response.close()
            return self._opened(response)

    def _opened(self, response: Response) -> Stream:
        stream = Stream(response, endpoint=self.endpoint, on_close=self._streams.discard)
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """Cut every stream and let go of every connection; the pool may be used again afterwards."""
        for stream in list(self._streams):
            stream.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


class Stream:
    """A body that comes for as long as the engine sends it. Read by one thread, closed by any."""

    def __init__(self, response: Response, *, endpoint: str, on_close: Any) -> None:
        self._response = response
        self._endpoint = endpoint
        self._on_close = on_close
        self._closed = False
        self._socket = _socket_of(response)
        if self._socket is not None:
            self._socket.settimeout(None)  # the call's timeout was for the headers

    @property
    def closed(self) -> bool:
        """Whether ``close()`` was called: an end of the data then says nothing about the container."""
        return self._closed

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield (1 for stdout or 2 for stderr, bytes) of the attach and exec format; ends with the connection.

        Raises:
            EngineUnavailableError: the connection broke.
        """
        with self._reading():
            while len(header := self._response.raw.read(8)) == 8:
                if payload := self._response.raw.read(int.from_bytes(header[4:], "big")):
                    yield header[0], payload

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield JSON objects, one a line; ends with the connection.

        Raises:
            EngineUnavailableError: the connection broke.
        """
        with self._reading():
            for line in self._response.iter_lines(chunk_size=None):
                if line:
                    yield json.loads(line)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """End quietly when cut by ``close()``, whatever the layers below make of the missing socket."""
        try:
            with translated(self._endpoint, "read a stream"):
                yield
        except (EngineUnavailableError, ValueError, AttributeError):
            if not self._closed:
                raise

    def close(self) -> None:
        """Cut the connection; ends a read that is blocked in another thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the engine was first
                self._socket.shutdown(socket.SHUT_RDWR)
        self._response.close()
        self._on_close(self)


def _socket_of(response: Response) -> socket.socket | None:
    """Return the socket under a response (the way the SDK finds it); None over ssh, where there is none."""
    file = getattr(getattr(response.raw, "_fp", None), "fp", None)
    found = getattr(getattr(file, "raw", None), "_sock", None)
    return found if isinstance(found, socket.socket) else None
