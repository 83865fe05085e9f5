"""A gate in front of a scripted upstream, both real, on one loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orchestrator.gate.app import Gate
from orchestrator.gate.control import Control
from orchestrator.gate.grants import Terms


class Upstream:
    """Answers as told; remembers what it was asked."""

    def __init__(self):
        self.seen = []
        self.answer = plain_answer
        self.open = 0  # calls that it is answering now

    async def handle(self, request):
        body = await request.json()
        self.seen.append((request.path_qs, dict(request.headers), body))
        self.open += 1
        try:
            return await self.answer(request, body)
        finally:
            self.open -= 1


async def plain_answer(request, body):
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    if request.path.startswith("/v1/messages") or request.path == "/v1/responses":
        usage = {"input_tokens": 10, "output_tokens": 5}
    return web.json_response({"id": "x", "model": body["model"], "usage": usage})


def sse(*events, hold=None):
    """Return an answer that streams these events; after the last it waits for ``hold``."""

    async def answer(request, _body):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            data = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {data}\n\n".encode())
        if hold is not None:
            await hold.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    return answer


def terms(**changes):
    body = {
        "kind": "student",
        "bead": "bead-1",
        "key": "sk-of-the-bead",
        "models": ["m"],
        "limits": {},
        "prices": {"m": {"input": 1.0, "output": 2.0}},
        "deadline": None,
    }
    return Terms.parse(body | changes)


class School:
    """The gate, its upstream, and clients of its sockets."""

    def __init__(self, root):
        self.root = root
        self.upstream = Upstream()
        self.gate = None
        self._sessions = []

    async def start_gate(self, url, **options):
        self.gate = Gate(self.root, url, **options)
        await self.gate.start()
        self.control = Control(self.gate)
        await self.control.open()

    async def stop_gate(self):
        await self.control.close()
        await self.gate.stop()

    def client(self, grant="g"):
        return self._client(self.root / "sockets" / grant / "gate.sock")

    def control_client(self):
        return self._client(self.root / "control" / "control.sock")

    def _client(self, path):
        session = aiohttp.ClientSession("http://gate", connector=aiohttp.UnixConnector(str(path)))
        self._sessions.append(session)
        return session

    async def raw(self, request, grant="g"):
        """Send bytes as they are; return all that comes back until the gate closes."""
        reader, writer = await asyncio.open_unix_connection(str(self.root / "sockets" / grant / "gate.sock"))
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        await writer.wait_closed()
        return answer

    async def close(self):
        for session in self._sessions:
            await session.close()
        await asyncio.sleep(0)


@pytest.fixture
def gate_root():
    # not tmp_path: pytest's folders are longer than a socket's path may be
    with tempfile.TemporaryDirectory(prefix="gate") as folder:
        yield Path(folder)


@pytest.fixture
def school(gate_root):
    """Return ``run(test, **gate_options)``: runs the coroutine function ``test(school)`` against a started gate."""

    def run(test, **options):
        async def body():
            school = School(gate_root)
            app = web.Application(client_max_size=64 << 20)
            app.router.add_route("*", "/{path:.*}", school.upstream.handle)
            server = TestServer(app)
            await server.start_server()
            school.url = str(server.make_url("")).rstrip("/")
            await school.start_gate(school.url, **options)
            try:
                await test(school)
            finally:
                await school.close()
                await school.stop_gate()
                await server.close()

        asyncio.run(body())

    return run


def chat(**changes):
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | changes


async def until(condition, seconds=20.0):
    """Wait until ``condition()`` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def helpers():
    """The names above, for test modules (which can't import a conftest under importlib mode)."""
    return type(
        "Helpers",
        (),
        {
            "sse": staticmethod(sse),
            "terms": staticmethod(terms),
            "chat": staticmethod(chat),
            "until": staticmethod(until),
            "open_files": staticmethod(open_files),
            "suppress": contextlib.suppress,
        },
    )
