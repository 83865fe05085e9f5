"""An OmniRoute that the user runs already: what aliases mean then, and the relay to the host's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orchestrator.errors import ConfigError
from orchestrator.gate.app import Gate
from orchestrator.gate.grants import Terms
from orchestrator.gateway import relay
from orchestrator.gateway.config import load_config
from orchestrator.gateway.gate_client import UnixConnection
from orchestrator.gateway.grants import SharedKey
from orchestrator.gateway.providers import use_gateway
from orchestrator.gateway.upstream import ensure_reachable, foreign_keys, foreign_omniroute, gate_upstream
from orchestrator.home import Home

SHIPPED = Path(__file__).parents[3] / "config" / "gateway.yaml"


@pytest.fixture
def home():
    with tempfile.TemporaryDirectory(prefix="school") as folder:
        root = Path(folder) / ("deep-" * 20) / "home"
        made = Home(root, root / "bookbag", root / "signals", root / "locks").ensure()
        yield made
        relay.drop_relay(made)
        until(lambda: not relay.runs(made))


def until(condition, seconds=30):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.05)


def foreign(home, url, tmp_path):
    (tmp_path / "key").write_text("sk-all\n")
    use_gateway(home, SHIPPED, url, shared_key_file=str(tmp_path / "key"))
    return load_config(SHIPPED, home)


def test_aliases_are_the_foreign_omniroutes_and_never_called_rehearsed(home, tmp_path):
    config = foreign(home, "http://10.0.0.5:20128", tmp_path)
    assert config.real
    for name in ("auto/review", "any/model:it-has"):
        assert not config.alias(name).rehearsed
        assert config.prices([name]) == {name: None}
    with pytest.raises(ConfigError, match="only the school's own OmniRoute reaches it"):
        config.alias("rehearsal")


def test_keys_come_from_the_shared_one_without_a_password(home, tmp_path):
    config = foreign(home, "http://10.0.0.5:20128", tmp_path)
    assert foreign_omniroute(config) is None
    keys = foreign_keys(config, None)
    assert isinstance(keys, SharedKey)
    assert keys.create_key("bead-1").secret == "sk-all"
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match="can't be read"):
        foreign_keys(config, None)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (None, "http://omniroute:20128"),
        ("http://10.0.0.5:20128", "http://10.0.0.5:20128"),
        ("http://127.0.0.1:20128", "unix:/gate/upstream/omniroute.sock"),
        ("http://localhost:20128", "unix:/gate/upstream/omniroute.sock"),
    ],
)
def test_the_gate_is_told_where_its_upstream_is(home, tmp_path, url, expected):
    if url is not None:
        foreign(home, url, tmp_path)
    assert gate_upstream(load_config(SHIPPED, home)) == expected


def test_one_relay_runs_follows_a_changed_address_and_ends_when_not_wanted(home, tmp_path):
    async def said(word):
        async def answer(_request):
            return web.Response(text=word)

        app = web.Application()
        app.router.add_get("/", answer)
        server = TestServer(app)
        await server.start_server()
        return server

    def ask():
        with contextlib.closing(UnixConnection(relay.socket_path(home))) as connection:
            connection.request("GET", "/", headers={"Connection": "close"})
            return connection.getresponse().read()

    async def body():
        one, two = await said("one"), await said("two")
        for server, word in ((one, b"one"), (two, b"two"), (two, b"two")):
            config = foreign(home, f"http://127.0.0.1:{server.port}", tmp_path)
            await asyncio.to_thread(ensure_reachable, home, config)
            assert await asyncio.to_thread(ask) == word
        await one.close()
        await two.close()

    asyncio.run(body())
    assert relay.runs(home)
    use_gateway(home, SHIPPED, None)
    ensure_reachable(home, load_config(SHIPPED, home))
    until(lambda: not relay.runs(home))
    assert not relay.socket_path(home).exists()


def test_the_gate_reaches_its_upstream_over_a_socket(home):
    async def answer(request):
        assert request.headers["Authorization"] == "Bearer sk-1"
        return web.json_response({"model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 2}})

    async def body():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        with tempfile.TemporaryDirectory() as folder:
            await web.UnixSite(runner, f"{folder}/omniroute.sock").start()
            gate = Gate(home.gate, f"unix:{folder}/omniroute.sock")
            await gate.start()
            await gate.put("g", Terms.parse({"kind": "principal", "key": "sk-1", "models": ["m"]}))

            def call():
                with contextlib.closing(UnixConnection(home.gate / "sockets" / "g" / "gate.sock")) as connection:
                    connection.request("POST", "/v1/chat/completions", '{"model": "m"}')
                    return connection.getresponse().status

            assert await asyncio.to_thread(call) == 200
            assert gate.usage("g")["completion_tokens"] == 2
            await gate.stop()
            await runner.cleanup()

    asyncio.run(body())
