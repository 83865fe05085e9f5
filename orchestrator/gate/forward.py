"""Passes one grant's calls on to the gateway and its answers back."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from orchestrator.gate import limits, routes
from orchestrator.gate.buffers import Buffers, Hold, too_complex
from orchestrator.gate.meters import Call, EventScanner
from orchestrator.gate.routes import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.gate.grants import Grant

logger = logging.getLogger(__name__)

BEAD_HEADER = "X-School-Bead"
BODY_SECONDS = 60.0  # a client that sends its body slower than this is let go
LARGE = 1 << 20  # bytes; a larger body is sent in pieces, so that other calls get their turn
ANSWER_LIMIT = 64 << 20  # bytes of an answer that does not stream
REVOKED, DEADLINE, STOPPING = "revoked", "deadline", "stopping"
ABORTED = {
    REVOKED: Refusal(403, "revoked", "This grant was revoked while the call ran."),
    DEADLINE: Refusal(403, "deadline", "The deadline of this grant passed while the call ran."),
    STOPPING: Refusal(503, "upstream_unavailable", "The gate is stopping.", retry_after=2),
}
TIMED_OUT = Refusal(504, "upstream_timeout", "The gateway did not answer in time.")
UNREACHABLE = Refusal(502, "upstream_unavailable", "The gateway can't be reached.", retry_after=2)
BROKEN = Refusal(502, "upstream_broken", "The gateway broke the answer off.")


class ClientGoneError(Exception):
    """The client closed its connection before the answer was complete."""


class Forwarder:
    """Handles the requests on one grant's socket."""

    def __init__(
        self,
        grant: Grant,
        session: aiohttp.ClientSession,
        upstream: str,
        buffers: Buffers,
        *,
        on_call: Callable[[Call], None],
        on_refusal: Callable[[Grant, dict[str, Any]], None],
    ) -> None:
        self._grant = grant
        self._session = session
        self._upstream = upstream.rstrip("/")
        self._buffers = buffers
        self._on_call = on_call
        self._on_refusal = on_refusal

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        bead = self._grant.bead_of(request.headers.get(BEAD_HEADER))
        refusal = routes.check(request) or limits.standing(self._grant)
        if refusal is not None:
            return self._refuse(request, bead, refusal)
        if request.raw_path.partition("?")[0] == routes.MODELS:
            return self._models()
        with Hold(self._buffers, self._grant) as hold:
            raw = await self._read(request, hold)
            prepared = raw if isinstance(raw, Refusal) else self._prepare(request, bead, raw)
            del raw  # a call may take minutes: what was read must not lie about meanwhile
            if isinstance(prepared, Refusal):
                return self._refuse(request, bead, prepared)
            return await self._call(request, *prepared)

    def _models(self) -> web.Response:
        """Only the grant's own aliases: what else the gateway has is nobody's business here."""
        data = [
            {"id": alias, "object": "model", "created": 0, "owned_by": "school"} for alias in self._grant.terms.models
        ]
        return web.json_response({"object": "list", "data": data})

    async def _read(self, request: web.BaseRequest, hold: Hold) -> bytes | Refusal:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > routes.BODY_LIMIT:
                        return routes.too_large()
                    if not hold.take(len(chunk)):
                        return Refusal(429, "parallel_limit", "Too many large bodies at once.", retry_after=1)
        except TimeoutError:
            return Refusal(408, "body_too_slow", f"The body did not arrive within {BODY_SECONDS:.0f} s.")
        except (aiohttp.ClientError, web.RequestPayloadError) as error:
            return Refusal(400, "bad_request", f"The body can't be read: {type(error).__name__}.")
        return b"".join(parts)

    def _prepare(self, request: web.BaseRequest, bead: str | None, raw: bytes) -> tuple[Call, bytes] | Refusal:
        """Start a call for a body and return it with what is to be sent; or say why not."""
        if too_complex(raw):
            return Refusal(413, "body_too_complex", "The body holds too many values.")
        try:
            body = json.loads(raw, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return Refusal(400, "bad_request", "The body is not a JSON object.")
        route = request.raw_path.partition("?")[0]
        call = limits.admit(self._grant, bead=bead, route=route, body=body, size=len(raw))
        return call if isinstance(call, Refusal) else (call, _outgoing(call, body))

    async def _call(self, request: web.BaseRequest, call: Call, payload: bytes) -> web.StreamResponse:
        try:
            return await self._forward(request, call, payload)
        except asyncio.CancelledError:
            call.code = call.code or "client_gone"
            raise
        except ClientGoneError:
            call.code = "client_gone"
            if request.transport is not None:
                request.transport.close()
            return web.Response(status=499)  # nobody is there to read it
        finally:
            call.settle()
            self._on_call(call)

    async def _forward(self, request: web.BaseRequest, call: Call, payload: bytes) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        try:
            async with asyncio.timeout_at(self._deadline()) as scope:
                call.scope = scope
                headers = routes.upstream_headers(request.headers, key=self._grant.terms.key, stream=call.stream)
                url = self._upstream + call.route
                data = payload if len(payload) < LARGE else io.BytesIO(payload)
                async with self._session.post(url, data=data, headers=headers, allow_redirects=False) as upstream:
                    call.status = upstream.status
                    if upstream.content_type == "text/event-stream":
                        response = web.StreamResponse(
                            status=upstream.status, headers=routes.client_headers(upstream.headers)
                        )
                        await self._stream(request, call, upstream, response)
                    else:
                        response = await self._whole(request, call, upstream)
                return response
        except TimeoutError:
            reason = None
            if scope.expired():
                reason = call.abort_reason = call.abort_reason or DEADLINE
                if reason in (DEADLINE, REVOKED):
                    self._grant.stopped = self._grant.stopped or reason
            return await self._fail(request, call, response, ABORTED.get(reason or "", TIMED_OUT))
        except aiohttp.ClientConnectorError:
            return await self._fail(request, call, response, UNREACHABLE)
        except aiohttp.ClientError:
            return await self._fail(request, call, response, BROKEN)

    def _deadline(self) -> float | None:
        if self._grant.terms.deadline is None:
            return None
        return asyncio.get_running_loop().time() + self._grant.terms.deadline - time.time()

    async def _stream(
        self,
        request: web.BaseRequest,
        call: Call,
        upstream: aiohttp.ClientResponse,
        response: web.StreamResponse,
    ) -> None:
        scanner = EventScanner(call.tally)
        with _client_side():
            await response.prepare(request)
        try:
            async for chunk in upstream.content.iter_any():
                scanner.feed(chunk)
                with _client_side():
                    await response.write(chunk)
        finally:
            scanner.close()
        call.settle()  # before the client knows that it may call again
        with _client_side():
            await response.write_eof()

    async def _whole(
        self, request: web.BaseRequest, call: Call, upstream: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        parts: list[bytes] = []
        size = 0
        async for chunk in upstream.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > ANSWER_LIMIT:
                return await self._fail(request, call, None, BROKEN)
        content = b"".join(parts)
        if 300 <= upstream.status < 400:
            return await self._fail(request, call, None, BROKEN)
        if call.route != routes.COUNT_TOKENS:
            with contextlib.suppress(ValueError, RecursionError):
                call.tally.read(json.loads(content))
            if call.tally.prompt is None and call.tally.completion is None:
                call.tally.note({name.lower(): value for name, value in upstream.headers.items()})
        call.settle()
        response = web.Response(status=upstream.status, body=content, headers=routes.client_headers(upstream.headers))
        with _client_side():
            await response.prepare(request)
            await response.write_eof()
        return response

    async def _fail(
        self,
        request: web.BaseRequest,
        call: Call,
        response: web.StreamResponse | None,
        failure: Refusal,
    ) -> web.StreamResponse:
        call.code = failure.code
        if response is None or not response.prepared:
            call.status = failure.status
            call.settle()
            return failure.response()
        # In mid-stream: say why in an event, then end without the last chunk, so that nobody takes it for complete.
        call.settle()
        with contextlib.suppress(ClientGoneError), _client_side():
            await response.write(b"event: error\ndata: " + json.dumps(failure.body()).encode() + b"\n\n")
        if request.transport is not None:
            request.transport.close()
        return response

    def _refuse(self, request: web.BaseRequest, bead: str | None, refusal: Refusal) -> web.StreamResponse:
        for counters in self._grant.counters(bead):
            counters.refused += 1
        if refusal.stopped and self._grant.stopped is None:
            self._grant.stopped = refusal.stopped
        if refusal.status != 429:
            self._grant.last_error = {"status": refusal.status, "code": refusal.code}
        entry = {
            "ts": round(time.time(), 3),
            "grant": self._grant.name,
            "bead": bead,
            "route": f"{request.method} {request.raw_path[:200]}",
            "model": refusal.model,
            "status": refusal.status,
            "code": refusal.code,
            "prompt_tokens": None,
            "completion_tokens": None,
            "cost_usd": None,
            "ms": 0.0,
            "stream": False,
            "reason": refusal.message,
        }
        self._on_refusal(self._grant, entry)
        response = refusal.response()
        if not request.content.at_eof():
            response.force_close()  # the rest of a body must not be read as the next request
        return response


@contextlib.contextmanager
def _client_side() -> Iterator[None]:
    """Tell a client that went away from a gateway that did: aiohttp has one family of errors for both."""
    try:
        yield
    except ConnectionError as error:
        raise ClientGoneError from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _outgoing(call: Call, body: dict[str, Any]) -> bytes:
    """Return what is sent: what was parsed and checked, written anew, so that both sides read the same."""
    if call.route == routes.CHAT and call.stream:
        options = body.get("stream_options")
        body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    try:
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can say it, UTF-8 can't
        return json.dumps(body, separators=(",", ":")).encode()
