"""Unix sockets of the gate: made so that only the home's uid can open them, and removed with their folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aiohttp.web_protocol import RequestHandler

SOCKET = "gate.sock"
CONNECTION_LIMIT = 128
"""Open connections of one grant; more are dropped at once, so that one student can't use up the descriptors."""
HEADER_LINE_LIMIT = 8190
KEEPALIVE = 75.0  # seconds
LINGER = 2.0
"""Seconds in which the rest of a refused body is still read away, so that its sender gets the answer."""


class CappedServer(web.Server):
    """An aiohttp low-level server with a bound on its open connections."""

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take the connection, or drop it when there are too many."""
        super().connection_made(handler, transport)
        if len(self.connections) > CONNECTION_LIMIT:
            transport.abort()


def bind(path: Path) -> socket.socket:
    """Return a socket bound at ``path``, mode 0600, an older one replaced.

    The address goes through the folder's descriptor: a socket's path is limited to 108 characters, a home is not.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)  # the folder is 0700, so nobody came in between
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    finally:
        os.close(folder)
    return bound


class GrantSocket:
    """One grant's folder ``sockets/<grant>`` with its listening socket."""

    def __init__(self, folder: Path, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        self._folder = folder
        # cancelled when the client goes away: that is how a call upstream ends with its client
        server = CappedServer(
            handler,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEPALIVE,
            lingering_time=LINGER,
            max_line_size=HEADER_LINE_LIMIT,
            max_field_size=HEADER_LINE_LIMIT,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=2.0)

    async def open(self) -> None:
        """Listen. The folder is kept when it exists: a running container has it mounted."""
        await self._runner.setup()
        listening = bind(self._folder / SOCKET)
        try:
            await web.SockSite(self._runner, listening).start()
        except BaseException:
            listening.close()
            raise

    async def close(self, *, remove_folder: bool) -> None:
        """Stop listening and close what is open; ``remove_folder`` also takes the folder away."""
        (self._folder / SOCKET).unlink(missing_ok=True)
        await self._runner.cleanup()
        if remove_folder:
            remove(self._folder)


def remove(folder: Path) -> None:
    """Remove a grant's folder; not there: nothing happens."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
