"""Budgets, deadline and revocation stop a bead in mid-run."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest
from aiohttp import web

CHAT = "/v1/chat/completions"


async def code_of(client, body):
    async with client.post(CHAT, json=body) as answer:
        if answer.status == 200:
            await answer.read()
            return 200, ""
        return answer.status, (await answer.json())["error"]["code"]


@pytest.mark.parametrize(
    ("limits", "allowed", "stopped", "overrun"),
    [
        ({"calls": 3}, 3, "calls", None),
        ({"tokens": 40}, 3, "tokens", {"tokens": 5}),
        ({"tokens": 45}, 3, "tokens", None),
        ({"cost_usd": 0.00005}, 3, "cost", {"cost_usd": 0.00001}),
    ],
)
def test_a_spent_budget_ends_the_run(school, helpers, limits, allowed, stopped, overrun):
    async def test(school):
        await school.gate.put("g", helpers.terms(limits=limits))
        client = school.client()
        for _ in range(allowed):
            assert await code_of(client, helpers.chat()) == (200, "")
        assert school.gate.usage("g")["stopped"] is None
        for _ in range(2):
            assert await code_of(client, helpers.chat()) == (403, "budget_exhausted")
        usage = school.gate.usage("g")
        assert (usage["stopped"], usage["calls"], usage["refused"]) == (stopped, allowed, 2)
        assert usage["overrun"] == (overrun if overrun is None else pytest.approx(overrun))
        assert len(school.upstream.seen) == allowed

    school(test)


def test_the_call_limit_is_exact_under_parallel_calls(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(limits={"calls": 5}))
        client = school.client()
        codes = await asyncio.gather(*(code_of(client, helpers.chat()) for _ in range(40)))
        assert codes.count((200, "")) == 5
        assert codes.count((403, "budget_exhausted")) == 35
        assert len(school.upstream.seen) == 5

    school(test)


def test_a_token_budget_is_overrun_by_one_call_at_most_under_parallel_calls(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(limits={"tokens": 50}))
        client = school.client()

        async def persist():
            for _ in range(50):
                status, code = await code_of(client, helpers.chat(max_tokens=5))
                if status == 403:
                    return code
                await asyncio.sleep(0.005)
            return "never refused"

        assert set(await asyncio.gather(*(persist() for _ in range(8)))) == {"budget_exhausted"}
        usage = school.gate.usage("g")
        assert 50 <= usage["prompt_tokens"] + usage["completion_tokens"] < 50 + 15

    school(test)


def test_more_parallel_calls_than_granted_are_asked_to_wait(school, helpers):
    async def test(school):
        hold = asyncio.Event()

        async def slow(_request, body):
            await hold.wait()
            return web.json_response({"model": body["model"]})

        school.upstream.answer = slow
        await school.gate.put("g", helpers.terms(limits={"parallel": 2}))
        client = school.client()
        running = [asyncio.create_task(code_of(client, helpers.chat())) for _ in range(2)]
        await helpers.until(lambda: school.upstream.open == 2)
        async with client.post(CHAT, json=helpers.chat()) as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "1"
            assert (await answer.json())["error"]["code"] == "parallel_limit"
        hold.set()
        assert await asyncio.gather(*running) == [(200, ""), (200, "")]
        assert school.gate.usage("g")["last_error"] is None

    school(test)


def test_after_the_deadline_nothing_passes(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(deadline=time.time() - 1))
        assert await code_of(school.client(), helpers.chat()) == (403, "deadline")
        assert school.gate.usage("g")["stopped"] == "deadline"

    school(test)


def test_the_deadline_ends_a_call_in_flight(school, helpers):
    async def test(school):
        never = asyncio.Event()

        async def hang(_request, _body):
            await never.wait()
            return web.Response()

        school.upstream.answer = hang
        await school.gate.put("g", helpers.terms(deadline=time.time() + 0.5))
        assert await code_of(school.client(), helpers.chat()) == (403, "deadline")
        assert school.gate.usage("g")["stopped"] == "deadline"
        never.set()

    school(test)


def test_revocation_cuts_a_stream_at_once_and_closes_the_socket(school, helpers):
    async def test(school):
        never = asyncio.Event()
        school.upstream.answer = helpers.sse({"choices": []}, hold=never)
        await school.gate.put("g", helpers.terms())
        body = json.dumps(helpers.chat(stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: gate\r\nContent-Length: {len(body)}\r\n\r\n"
        answer = asyncio.create_task(school.raw(head.encode() + body))
        await helpers.until(lambda: school.upstream.open == 1)
        await asyncio.sleep(0.05)  # let the first event through
        final = await asyncio.wait_for(school.gate.delete("g"), 20)
        rest = await answer
        assert rest.startswith(b"HTTP/1.1 200")
        assert not rest.endswith(b"0\r\n\r\n")  # never the end of a complete answer
        assert b'"code": "revoked"' in rest
        assert (final["stopped"], final["revoked"], final["in_flight"]) == ("revoked", True, 0)
        assert final["by_bead"]["bead-1"]["failed"] == 1
        assert not (school.root / "sockets" / "g").exists()
        with pytest.raises(aiohttp.ClientConnectorError):
            await school.client().post(CHAT, json=helpers.chat())
        never.set()

    school(test)


def test_a_call_in_flight_at_revocation_is_refused_as_revoked(school, helpers):
    async def test(school):
        never = asyncio.Event()

        async def hang(_request, _body):
            await never.wait()
            return web.Response()

        school.upstream.answer = hang
        await school.gate.put("g", helpers.terms())
        task = asyncio.create_task(code_of(school.client(), helpers.chat()))
        await helpers.until(lambda: school.upstream.open == 1)
        await school.gate.delete("g")
        assert await task == (403, "revoked")
        never.set()

    school(test)


def test_raising_a_limit_lets_the_bead_go_on_with_its_usage_kept(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(limits={"calls": 1}))
        client = school.client()
        assert await code_of(client, helpers.chat()) == (200, "")
        assert await code_of(client, helpers.chat()) == (403, "budget_exhausted")
        await school.gate.put("g", helpers.terms(limits={"calls": 2}, key="sk-new"))
        assert school.gate.usage("g")["stopped"] is None
        assert await code_of(client, helpers.chat()) == (200, "")
        assert school.upstream.seen[-1][1]["Authorization"] == "Bearer sk-new"
        assert school.gate.usage("g")["calls"] == 2

    school(test)
