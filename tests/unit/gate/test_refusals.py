"""Requests that must not pass: other routes, path tricks, smuggling shapes, oversize, foreign models."""

from __future__ import annotations

import io
import json

import pytest

from orchestrator.gate import routes

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", CHAT),
        ("POST", "/v1/models"),
        ("POST", "/api/v1/registered-keys"),
        ("GET", "/v1/files"),
        ("POST", "/v1/batches"),
        ("GET", "/"),
        ("DELETE", "/v1/messages"),
        ("POST", CHAT + "/"),
        ("POST", "/v1//chat/completions"),
        ("POST", "/v1/chat/../chat/completions"),
        ("POST", "/v1/chat%2fcompletions"),
        ("POST", "/v1/%63hat/completions"),
        ("POST", "/v1/chat/completions;x"),
        ("POST", "/V1/chat/completions"),
        ("POST", "http://omniroute:20128" + CHAT),
        ("CONNECT", "omniroute:20128"),
        ("OPTIONS", "*"),
    ],
)
def test_any_other_route_is_refused_counted_and_logged(school, helpers, method, path):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        request = f"{method} {path} HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n"
        answer = await school.raw(request.encode())
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
        assert school.upstream.seen == []
        if answer.startswith(b"HTTP/1.1 404"):
            assert b"route_not_allowed" in answer
            assert school.gate.usage("g")["refused"] == 1
            assert school.gate.log.read(bead="bead-1")[0]["code"] == "route_not_allowed"

    school(test)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: +5\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"X-Long: " + b"a" * 20_000 + b"\r\n",
        b"".join(b"X-%d: a\r\n" % number for number in range(120)),
    ],
)
def test_malformed_and_smuggling_heads_reach_nobody(school, helpers, head):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        inner = b"POST /api/keys HTTP/1.1\r\nHost: gate\r\nContent-Length: 0\r\n\r\n"
        request = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: gate\r\n" + head + b"\r\n0\r\n\r\n" + inner
        answer = await school.raw(request)
        assert answer.startswith(b"HTTP/1.")
        assert answer.split(b" ")[1][:1] == b"4"
        assert b"HTTP/1.1 200" not in answer
        assert school.upstream.seen == []

    school(test)


def test_the_body_after_a_refused_head_is_not_taken_for_a_request(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        body = json.dumps(helpers.chat()).encode()
        hidden = b"POST %s HTTP/1.1\r\nHost: gate\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body)
        head = b"POST /api/keys HTTP/1.1\r\nHost: gate\r\nContent-Length: %d\r\n\r\n" % (len(hidden) + 10)
        answer = await school.raw(head + hidden)
        assert answer.startswith(b"HTTP/1.1 404")
        assert school.upstream.seen == []

    school(test)


@pytest.mark.parametrize("model", ["other", "M", "m ", "", None, 7, ["m"]])
def test_a_model_outside_the_grant_is_refused(school, helpers, model):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat(model=model)) as answer:
            assert answer.status == 403
            assert (await answer.json())["error"]["code"] == "model_not_allowed"
        assert school.upstream.seen == []
        assert school.gate.usage("g")["calls"] == 0

    school(test)


def test_a_model_named_twice_is_sent_as_it_was_checked(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, data=b'{"model": "other", "model": "m"}') as answer:
            assert answer.status == 200
        async with school.client().post(CHAT, data=b'{"model": "m", "model": "other"}') as answer:
            assert answer.status == 403
        assert [body for _, _, body in school.upstream.seen] == [{"model": "m"}]

    school(test)


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"model": NaN}', b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_is_no_json_object_is_refused(school, helpers, body):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, data=body) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["code"] == "bad_request"
        assert school.upstream.seen == []

    school(test)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused(school, helpers, monkeypatch, chunked):
    monkeypatch.setattr(routes, "BODY_LIMIT", 1000)

    async def test(school):
        await school.gate.put("g", helpers.terms())
        body = json.dumps(helpers.chat(pad="a" * 2000)).encode()

        async def parts():
            yield body[:900]
            yield body[900:]

        async with school.client().post(CHAT, data=parts() if chunked else body) as answer:
            assert answer.status == 413
        assert school.upstream.seen == []

    school(test)


def test_a_body_of_countless_values_is_refused_before_it_is_parsed(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        body = io.BytesIO(b'{"model":"m","x":[' + b"[]," * 600_000 + b"[]]}")
        async with school.client().post(CHAT, data=body) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["code"] == "body_too_complex"
        assert school.upstream.seen == []

    school(test)


def test_a_large_body_passes_whole(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        body = helpers.chat(image="a" * (5 << 20))
        async with school.client().post(CHAT, data=io.BytesIO(json.dumps(body).encode())) as answer:
            assert answer.status == 200
        assert school.upstream.seen[0][2] == body

    school(test)


def test_bodies_that_arrive_at_once_share_a_bound_of_memory(school, helpers, monkeypatch):
    monkeypatch.setattr("orchestrator.gate.buffers.GRANT_LIMIT", 1500)

    async def test(school):
        import asyncio

        await school.gate.put("g", helpers.terms())
        body = json.dumps(helpers.chat(pad="a" * 900)).encode()
        arriving = asyncio.Event()

        async def parts():
            yield body[:800]
            arriving.set()
            await go_on.wait()
            yield body[800:]

        go_on = asyncio.Event()
        first = asyncio.create_task(school.client().post(CHAT, data=parts()))
        await arriving.wait()
        await helpers.until(lambda: school.gate.grants()[0].buffered >= 800)
        async with school.client().post(CHAT, data=body) as answer:
            assert answer.status == 429
        go_on.set()
        async with await first as answer:
            assert answer.status == 200
        await helpers.until(lambda: school.gate.grants()[0].buffered == 0)
        async with school.client().post(CHAT, data=body) as answer:
            assert answer.status == 200

    school(test)


def test_letters_of_any_script_and_half_surrogates_pass_unchanged(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        for text in ("Grüße 漢字 🎒", "\ud83d", "\u0000"):
            async with school.client().post(CHAT, data=json.dumps(helpers.chat(x=text))) as answer:
                assert answer.status == 200
            assert school.upstream.seen[-1][2]["x"] == text

    school(test)


def test_refusals_beyond_a_number_are_sampled_in_the_log_and_all_counted(school, helpers, monkeypatch):
    monkeypatch.setattr("orchestrator.gate.app.REFUSALS_LOGGED", 3)

    async def test(school):
        await school.gate.put("g", helpers.terms())
        client = school.client()
        for _ in range(10):
            async with client.get("/v1/files") as answer:
                await answer.read()
        assert school.gate.usage("g")["refused"] == 10
        assert len(school.gate.log.read(grant="g")) == 3

    school(test)


def test_connections_beyond_the_limit_are_dropped(school, helpers, monkeypatch):
    monkeypatch.setattr("orchestrator.gate.sockets.CONNECTION_LIMIT", 2)

    async def test(school):
        import asyncio

        await school.gate.put("g", helpers.terms())
        path = str(school.root / "sockets" / "g" / "gate.sock")
        open_ones = [await asyncio.open_unix_connection(path) for _ in range(3)]
        assert await asyncio.wait_for(open_ones[2][0].read(), 20) == b""
        async with asyncio.timeout(20):
            open_ones[0][1].write(b"GET /v1/models HTTP/1.1\r\nHost: gate\r\n\r\n")
            assert (await open_ones[0][0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in open_ones:
            writer.close()

    school(test)
