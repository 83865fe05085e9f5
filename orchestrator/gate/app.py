"""The gate as a whole: its grants, their sockets, the state on disk and the log."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import aiohttp

from orchestrator.gate.buffers import Buffers
from orchestrator.gate.day import Day
from orchestrator.gate.egress import EgressSocket, Passage
from orchestrator.gate.forward import REVOKED, STOPPING, Forwarder
from orchestrator.gate.grants import Grant
from orchestrator.gate.log import REFUSAL_SAMPLE, REFUSALS_LOGGED, CallLog
from orchestrator.gate.sockets import SOCKET, GrantSocket
from orchestrator.gate.state import State

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.gate.grants import Limits, Terms
    from orchestrator.gate.meters import Call

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0  # until the first byte, and between two chunks
UPSTREAM_KEEPALIVE = 3.0  # below Node's 5 s: a connection that the gateway is just closing is never reused


class Gate:
    """Everything under one root folder: ``control/ sockets/ state/ log/``."""

    def __init__(self, root: Path, upstream: str, *, silence: float = SILENCE_SECONDS) -> None:
        self.root = root
        self.upstream = upstream
        self.log = CallLog(root / "log")
        self._url = "http://omniroute" if upstream.startswith("unix:") else upstream
        self._buffers = Buffers()
        self._silence = silence
        self._state = State(root / "state")
        self.day = Day()
        self._grants: dict[str, Grant] = {}
        self._sockets: dict[str, GrantSocket] = {}
        self._egress: dict[str, EgressSocket] = {}
        self._session: aiohttp.ClientSession | None = None
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Bring back the grants of the last run; sockets that belong to none are removed.

        Their folders stay: the principal makes a teacher's folder, and mounts it, before it asks for the grant.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=self._silence)
        connector: aiohttp.BaseConnector
        if self.upstream.startswith("unix:"):  # the host's relay to an OmniRoute on its loopback
            path = self.upstream.removeprefix("unix:")
            connector = aiohttp.UnixConnector(path, limit=0, keepalive_timeout=UPSTREAM_KEEPALIVE)
        else:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=UPSTREAM_KEEPALIVE)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._state.restore_day(self.day)
        self._grants = {grant.name: grant for grant in self._state.load()}
        folder = self.root / "sockets"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in folder.iterdir():
            if stale.name not in self._grants:
                (stale / SOCKET).unlink(missing_ok=True)
        for grant in self._grants.values():
            await self._open(grant)

    async def stop(self) -> None:
        """End the calls in flight, keep the grants."""
        now = asyncio.get_running_loop().time()
        for grant in self._grants.values():
            for call in tuple(grant.in_flight):
                call.abort(STOPPING, now)
        await asyncio.gather(*(egress.close() for egress in self._egress.values()))
        await asyncio.gather(*(socket.close(remove_folder=False) for socket in self._sockets.values()))
        self._egress.clear()
        self._sockets.clear()
        for grant in self._grants.values():
            self._state.save_usage(grant)
        if self._session is not None:
            await self._session.close()
        self.log.close()

    async def put(self, name: str, terms: Terms) -> tuple[Grant, bool]:
        """Make a grant or change its terms; return it and whether it is new. Usage is kept."""
        async with self._changing:
            grant = self._grants.get(name)
            if grant is not None:
                grant.terms = terms
                grant.stopped = None  # judged anew by the next call
                await self._fit_egress(grant)
                self._state.save_grants(self._grants.values())
                return grant, False
            grant = Grant(name, terms)
            # on disk before it works: after a crash a grant is either known here or was never open
            self._state.save_grants([*self._grants.values(), grant])
            self._state.forget_final(name)
            self._grants[name] = grant
            await self._open(grant)
            return grant, True

    async def delete(self, name: str) -> dict[str, Any] | None:
        """Revoke a grant, cutting its calls in flight; return its final usage, or None if it was never here."""
        async with self._changing:
            grant = self._grants.pop(name, None)
            if grant is None:
                return self._state.final(name)
            grant.revoked = True
            now = asyncio.get_running_loop().time()
            for call in tuple(grant.in_flight):
                call.abort(REVOKED, now)
            if (egress := self._egress.pop(name, None)) is not None:
                await egress.close()
            socket = self._sockets.pop(name, None)
            if socket is not None:
                # a teacher outlives its grant and keeps the folder mounted
                await socket.close(remove_folder=grant.terms.kind != "teacher")
            self._state.save_final(grant)
            self._state.save_grants(self._grants.values())
            return grant.usage()

    def grants(self) -> list[Grant]:
        """Return the living grants."""
        return list(self._grants.values())

    def usage(self, name: str) -> dict[str, Any] | None:
        """Return a grant's usage, also after its revocation, or None."""
        grant = self._grants.get(name)
        return grant.usage() if grant is not None else self._state.final(name)

    def limit_day(self, limits: Limits) -> dict[str, Any]:
        """Set the limits of the day for all grants together; return what is used of them."""
        self.day.limits = limits
        self._state.save_day(self.day)
        return self.day.as_json()

    async def _open(self, grant: Grant) -> None:
        grant.day = self.day
        if self._session is None:
            raise RuntimeError("Gate.start() was not called")
        forwarder = Forwarder(
            grant, self._session, self._url, self._buffers, on_call=self._called, on_refusal=self._refused
        )
        socket = GrantSocket(self.root / "sockets" / grant.name, forwarder.handle)
        await socket.open()
        self._sockets[grant.name] = socket
        await self._fit_egress(grant)

    async def _fit_egress(self, grant: Grant) -> None:
        """Open or close a grant's way out, as its terms have it."""
        there = self._egress.get(grant.name)
        if grant.terms.egress and there is None:
            egress = EgressSocket(self.root / "sockets" / grant.name, grant, on_end=self._left)
            await egress.open()
            self._egress[grant.name] = egress
        elif there is not None and not grant.terms.egress:
            del self._egress[grant.name]
            await there.close()

    def _left(self, passage: Passage) -> None:
        if passage.status >= 400:
            self._refused(passage.grant, passage.log_entry())
        else:
            self._record(passage.grant, passage.log_entry())

    def _called(self, call: Call) -> None:
        self._record(call.grant, call.log_entry())

    def _refused(self, grant: Grant, entry: dict[str, Any]) -> None:
        grant.refusals_logged += 1
        if grant.refusals_logged <= REFUSALS_LOGGED or grant.refusals_logged % REFUSAL_SAMPLE == 0:
            self._record(grant, entry)

    def _record(self, grant: Grant, entry: dict[str, Any]) -> None:
        try:
            self._state.save_day(self.day)
            if not grant.revoked:  # the final usage is written by delete()
                self._state.save_usage(grant)
            self.log.write(entry)
        except OSError:  # a full disk must not take the models away from every bead; the counters in memory hold
            logger.exception("The gate can't write its state or log under %s", self.root)
