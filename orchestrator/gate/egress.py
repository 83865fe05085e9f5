"""Allow-listed egress: a CONNECT proxy on a socket of its own beside a grant's model socket. Off unless granted.

A name counts exactly as it is listed, with its port. The gate resolves it, once, and connects to what it found: a name
that leads to a private, local, link-local or otherwise special address is refused (metadata services, the bridge, the
gateway itself), also when it only leads there among others, and can't be made to lead elsewhere between the look and
the connection. What passes is counted and bounded, and every connection is logged with its bead.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.gate.sockets import bind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from orchestrator.gate.grants import Grant

    Resolve = Callable[[str, int], Awaitable[list[str]]]
    Connect = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

SOCKET = "egress.sock"
HEAD_LIMIT = 8192
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 120.0
CONNECTION_LIMIT = 32
CHUNK = 65536
_REQUEST = re.compile(rb"CONNECT ([A-Za-z0-9.-]{1,253}):([0-9]{1,5}) HTTP/1\.[01]\r\n")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# what the standard library's is_global lets pass, in some versions, and an address that clouds answer on from inside
_SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "64:ff9b:1::/48", "2001::/23", "3fff::/20")
)


def public(address: str) -> bool:
    """Return whether an address is one of the public internet, whatever it is wrapped in."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a scope, or no address
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if found in _NAT64:
            inner = ipaddress.ip_address(int(found) & 0xFFFFFFFF)  # type: ignore[assignment]
        if inner is not None:
            return public(str(inner))
    if any(found.version == network.version and found in network for network in _SPECIAL):
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


async def resolve(name: str, port: int) -> list[str]:
    """Return the addresses of a name, from the gate's own resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class RefusedError(Exception):
    """A connection that may not be made. ``code`` is for the log and the client."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass(slots=True)
class Passage:
    """One connection, for the log."""

    grant: Grant
    place: str = ""
    address: str = ""
    up: int = 0
    down: int = 0
    code: str | None = None
    status: int = 0
    started: float = field(default_factory=time.time)

    def log_entry(self) -> dict[str, Any]:
        """Return its line of the log."""
        return {
            "ts": round(self.started, 3),
            "grant": self.grant.name,
            "bead": self.grant.terms.bead,
            "route": f"CONNECT {self.place[:300]}",
            "status": self.status,
            "code": self.code,
            "address": self.address,
            "bytes_up": self.up,
            "bytes_down": self.down,
            "ms": round((time.time() - self.started) * 1000, 1),
        }


class EgressSocket:
    """Serves ``sockets/<grant>/egress.sock``."""

    def __init__(
        self,
        folder: Path,
        grant: Grant,
        *,
        on_end: Callable[[Passage], None],
        resolver: Resolve = resolve,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        self._path = folder / SOCKET
        self._grant = grant
        self._on_end = on_end
        self._resolve = resolver
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._accept, sock=bind(self._path), limit=HEAD_LIMIT)

    async def close(self) -> None:
        """Stop listening, and cut what is open."""
        self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio starts it as one
        if len(self._running) >= CONNECTION_LIMIT:
            writer.close()
            return
        self._running.add(task)
        passage = Passage(self._grant)
        try:
            await self._pass(passage, reader, writer)
        except RefusedError as refusal:
            passage.status, passage.code = refusal.status, refusal.code
            with contextlib.suppress(OSError):
                writer.write(_answer(refusal.status, refusal.code))
                await writer.drain()
        except OSError:
            passage.code = passage.code or "broken"
        except asyncio.CancelledError:
            passage.code = passage.code or "revoked"
        finally:
            self._running.discard(task)
            writer.close()
            self._on_end(passage)

    async def _pass(self, passage: Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, port = await self._asked_for(passage, reader)
        self._check_grant(passage.place)
        far_reader, far_writer = await self._reach(passage, name, port)
        passage.status = 200
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ways = [
            asyncio.create_task(self._copy(passage, reader, far_writer, up=True)),
            asyncio.create_task(self._copy(passage, far_reader, writer, up=False)),
        ]
        try:
            async with asyncio.timeout_at(self._deadline()):
                await asyncio.gather(*ways)
        except RefusedError as refusal:  # in mid-stream: it is cut, there is nobody to tell
            passage.code = refusal.code
        except TimeoutError:
            passage.code = "timed_out"
        except OSError:
            passage.code = "broken"
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()

    async def _asked_for(self, passage: Passage, reader: asyncio.StreamReader) -> tuple[str, int]:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise RefusedError(400, "bad_request") from None
        match = _REQUEST.match(head)
        if match is None:
            passage.place = head.partition(b"\r\n")[0].decode("latin-1")
            raise RefusedError(400, "bad_request")
        name, port = match[1].decode("ascii").lower(), int(match[2])
        passage.place = f"{name}:{port}"
        return name, port

    def _check_grant(self, place: str) -> None:
        grant = self._grant
        if grant.revoked or grant.expired():
            raise RefusedError(403, "revoked" if grant.revoked else "deadline")
        if place not in grant.terms.egress:
            raise RefusedError(403, "egress_not_allowed")
        self._check_bytes()

    def _check_bytes(self) -> None:
        limit = self._grant.terms.egress_bytes
        if limit is not None and self._grant.egress_used >= limit:
            raise RefusedError(403, "egress_bytes_spent")

    async def _reach(self, passage: Passage, name: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await self._resolve(name, port)
        except (OSError, UnicodeError, TimeoutError):
            raise RefusedError(502, "not_resolved") from None
        if not addresses or not all(public(address) for address in addresses):
            passage.address = ", ".join(addresses)[:200]
            raise RefusedError(403, "address_not_public")
        for address in addresses:
            passage.address = address
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await self._connect(address, port)
        raise RefusedError(502, "not_reached")

    def _deadline(self) -> float | None:
        if self._grant.terms.deadline is None:
            return None
        return asyncio.get_running_loop().time() + self._grant.terms.deadline - time.time()

    async def _copy(
        self, passage: Passage, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, up: bool
    ) -> None:
        while True:
            async with asyncio.timeout(IDLE_SECONDS):
                data = await source.read(CHUNK)
            if not data:
                with contextlib.suppress(OSError):
                    target.write_eof()
                return
            self._grant.egress_used += len(data)
            if up:
                passage.up += len(data)
            else:
                passage.down += len(data)
            self._check_bytes()
            target.write(data)
            await target.drain()


def _answer(status: int, code: str) -> bytes:
    body = f'{{"error":{{"type":"school_gate","code":"{code}"}}}}'.encode("ascii")
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode("ascii") + body
