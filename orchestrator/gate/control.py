"""The gate's control API for the principal, on a socket that only the home's uid (and root) can open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from orchestrator.gate.grants import Limits, Terms, valid_name
from orchestrator.gate.sockets import SOCKET, bind

if TYPE_CHECKING:
    from orchestrator.gate.app import Gate

LOG_LIMIT = 10_000


class Control:
    """Serves ``control/control.sock``."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._path = gate.root / "control" / "control.sock"
        app = web.Application(client_max_size=1 << 20)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/day", self._day),
                web.put("/day", self._limit_day),
                web.get("/grants", self._list),
                web.put("/grants/{grant}", self._put),
                web.get("/grants/{grant}", self._usage),
                web.delete("/grants/{grant}", self._delete),
                web.get("/log", self._log),
            ],
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)

    async def open(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.SockSite(self._runner, bind(self._path)).start()

    async def close(self) -> None:
        """Stop listening."""
        self._path.unlink(missing_ok=True)
        await self._runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "upstream": self._gate.upstream, "grants": len(self._gate.grants())})

    async def _day(self, _request: web.Request) -> web.Response:
        return web.json_response(self._gate.day.as_json())

    async def _limit_day(self, request: web.Request) -> web.Response:
        try:
            limits = Limits.parse(await request.json())
        except ValueError as error:
            return _error(400, "bad_limits", str(error))
        return web.json_response(self._gate.limit_day(limits))

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response([grant.usage() for grant in self._gate.grants()])

    async def _put(self, request: web.Request) -> web.Response:
        name = request.match_info["grant"]
        if not valid_name(name):
            return _error(400, "bad_grant", "A grant's name is letters, digits, dots, dashes and underscores.")
        try:
            terms = Terms.parse(await request.json())
        except ValueError as error:
            return _error(400, "bad_terms", str(error))
        grant, new = await self._gate.put(name, terms)
        body = {"grant": grant.name, "socket": f"sockets/{grant.name}/{SOCKET}"}
        return web.json_response(body, status=201 if new else 200)

    async def _usage(self, request: web.Request) -> web.Response:
        name = request.match_info["grant"]
        usage = self._gate.usage(name) if valid_name(name) else None
        return _unknown(name) if usage is None else web.json_response(usage)

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["grant"]
        # shielded: a principal that dies while it revokes leaves a grant that is revoked
        usage = await asyncio.shield(self._gate.delete(name)) if valid_name(name) else None
        return _unknown(name) if usage is None else web.json_response(usage)

    async def _log(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            limit = min(int(query.get("limit", "100")), LOG_LIMIT)
        except ValueError:
            return _error(400, "bad_limit", "limit must be a whole number.")
        entries = await asyncio.to_thread(
            self._gate.log.read,
            grant=query.get("grant"),
            bead=query.get("bead"),
            limit=limit,
        )
        return web.json_response(entries)


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"type": "school_gate", "code": code, "message": message}}, status=status)


def _unknown(name: str) -> web.Response:
    return _error(404, "unknown_grant", f"There is no grant {name[:128]!r}.")
