"""The HTTP server: /health, /v1/models, /v1/chat/completions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from orchestrator import layout
from orchestrator.rehearsal import conversation, replies
from orchestrator.rehearsal.scenarios import HttpError, Library, Reply, fill

if TYPE_CHECKING:
    from orchestrator.rehearsal.conversation import Conversation

BODY_LIMIT = 64 << 20
HEADERS = {"X-School-Rehearsal": "scripted"}
COUNTERS_KEPT = 10_000
LONGEST_DELAY = 3600.0  # seconds


class Rehearsal:
    """Answers calls from a library of scenarios."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._errors_given: Counter[tuple[str, str]] = Counter()

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._chat),
            ],
        )
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        scenarios = self._library.scenarios()
        problems = self._library.problems
        return web.json_response({"ok": not problems, "scenarios": len(scenarios), "problems": problems})

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": replies.MODEL, "object": "model", "created": 0, "owned_by": "school (scripted)"}
        return web.json_response({"object": "list", "data": [model]}, headers=HEADERS)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            talk = conversation.read(body)
        except (ValueError, AttributeError) as error:
            return _error(400, "invalid_request", f"The body is not a chat completions request: {error}")
        reply, delay = self._choose(talk)
        await asyncio.sleep(delay)
        if isinstance(reply, web.Response):
            return reply
        if reply.malformed == "body":
            return web.Response(text='{"choices": [{"message": {"content": "', content_type="application/json")
        said = replies.answer(reply, talk, body.get("tools"))
        if body.get("stream") is not True:
            return web.json_response(replies.whole(said), headers=HEADERS)
        options = body.get("stream_options")
        include_usage = isinstance(options, dict) and options.get("include_usage") is True
        return await _stream(request, said, include_usage=include_usage, broken=reply.malformed == "stream")

    def _choose(self, talk: Conversation) -> tuple[Reply | web.Response, float]:
        """Return the reply of the first scenario that fits, and how long to wait before it (s)."""
        scenarios = self._library.scenarios()
        delay = 0.0
        if self._library.problems:
            # a script that is only half read would rehearse something else than its author thinks
            return _error(400, "rehearsal_scenario_invalid", "; ".join(self._library.problems)), delay
        for scenario in scenarios:
            variables = scenario.fits(
                role=talk.role, task=talk.task, prompt=talk.prompt, model=talk.model, turn=talk.turn
            )
            if variables is None:
                continue
            reply = scenario.replies[min(talk.turn, len(scenario.replies) - 1)]
            delay += _seconds(fill(reply.delay, variables))
            if reply.next_scenario:
                continue
            if reply.error is not None:
                failure = self._fail(reply.error, variables, (scenario.name, talk.bead or talk.task))
                if failure is None:
                    continue
                return failure, delay
            filled = {
                "text": fill(reply.text, variables),
                "do": tuple(fill(reply.do, variables)),
                "review": fill(reply.review, variables),
            }
            return replace(reply, **filled), delay
        return _error(404, "no_scenario", f"No scenario fits role {talk.role!r} at turn {talk.turn}."), delay

    def _fail(self, error: HttpError, variables: dict[str, str], key: tuple[str, str]) -> web.Response | None:
        times = fill(error.times, variables)
        if times:
            if self._errors_given[key] >= int(_seconds(times)):
                return None
            if len(self._errors_given) > COUNTERS_KEPT:
                self._errors_given.clear()
            self._errors_given[key] += 1
        response = _error(
            int(_seconds(fill(error.status, variables))) or 500, "scripted", fill(error.message, variables)
        )
        if error.retry_after:
            response.headers["Retry-After"] = fill(error.retry_after, variables)
        return response


def _seconds(text: str) -> float:
    try:
        return min(max(float(text or 0), 0.0), LONGEST_DELAY)
    except ValueError:
        return 0.0


def _error(status: int, code: str, message: str) -> web.Response:
    body = {"error": {"type": "school_rehearsal", "code": code, "message": f"{replies.MARK} {message}"}}
    return web.json_response(body, status=status, headers=HEADERS)


async def _stream(
    request: web.Request, said: replies.Answer, *, include_usage: bool, broken: bool
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **HEADERS})
    try:
        await response.prepare(request)
        for number, chunk in enumerate(replies.chunks(said, include_usage=include_usage)):
            if broken and number == 2:
                await response.write(b'data: {"choices": [{"delta": {"content": "')
                if request.transport is not None:
                    request.transport.close()
                return response
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
    except ConnectionError:  # the caller went away: nobody is left to rehearse with
        return response
    return response


def folders(environ: Any) -> list[Path]:
    """Return the folders of scenarios: the home's own first, then the shipped ones."""
    shipped = environ.get("SCHOOL_REHEARSAL_SHIPPED") or f"{layout.LIB}/config/rehearsals"
    own = environ.get("SCHOOL_REHEARSAL_OWN") or layout.REHEARSAL_SCENARIOS
    return [Path(own), Path(shipped)]
