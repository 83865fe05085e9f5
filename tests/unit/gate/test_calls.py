"""What passes through the gate, and what it does when either side fails (R-56)."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

CHAT = "/v1/chat/completions"


def test_a_call_passes_with_the_grants_key_and_nothing_of_the_clients_identity(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        headers = {
            "Authorization": "Bearer stolen",
            "x-api-key": "stolen",
            "Cookie": "a=b",
            "X-Forwarded-For": "1.2.3.4",
            "Forwarded": "for=1.2.3.4",
            "X-OmniRoute-Combo": "other",
            "anthropic-version": "2023-06-01",
        }
        async with school.client().post(CHAT + "?beta=true", json=helpers.chat(), headers=headers) as answer:
            assert answer.status == 200
            assert (await answer.json())["usage"]["prompt_tokens"] == 10
        path, seen, body = school.upstream.seen[0]
        assert path == CHAT
        assert body == helpers.chat()
        assert seen["Authorization"] == "Bearer sk-of-the-bead"
        assert seen["Accept"] == "application/json"
        assert seen["Anthropic-Version"] == "2023-06-01"
        assert not {"x-api-key", "cookie", "x-forwarded-for", "forwarded", "x-omniroute-combo"} & {
            name.lower() for name in seen
        }

    school(test)


@pytest.mark.parametrize("route", [CHAT, "/v1/responses", "/v1/messages"])
def test_usage_and_cost_are_counted_for_each_wire_format(school, helpers, route):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        async with school.client().post(route, json=helpers.chat()) as answer:
            await answer.read()
        usage = school.gate.usage("g")
        assert (usage["calls"], usage["prompt_tokens"], usage["completion_tokens"]) == (1, 10, 5)
        assert usage["cost_usd"] == pytest.approx(20e-6)
        assert usage["by_bead"]["bead-1"]["prompt_tokens"] == 10

    school(test)


def test_counting_tokens_beforehand_uses_no_tokens(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        async with school.client().post("/v1/messages/count_tokens", json=helpers.chat()) as answer:
            assert answer.status == 200
        usage = school.gate.usage("g")
        assert (usage["calls"], usage["prompt_tokens"], usage["unmetered"]) == (1, 0, 0)
        assert usage["cost_usd"] == 0

    school(test)


def test_an_unknown_price_makes_the_cost_unknown_and_never_zero(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(prices={"m": None}))
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            await answer.read()
        assert school.gate.usage("g")["cost_usd"] is None

    school(test)


def test_a_stream_passes_event_by_event_and_is_counted(school, helpers):
    async def test(school):
        hold = asyncio.Event()
        first = {"model": "m", "choices": [{"delta": {"tool_calls": [{"index": 0}]}}], "usage": None}
        last = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        school.upstream.answer = helpers.sse(first, last, hold=hold)
        await school.gate.put("g", helpers.terms())
        body = helpers.chat(stream=True, stream_options={"other": 1})
        async with school.client().post(CHAT, json=body) as answer:
            line = await answer.content.readline()  # arrives although upstream has not ended
            assert json.loads(line[5:]) == first
            hold.set()
            rest = await answer.content.read()
        assert rest.endswith(b"data: [DONE]\n\n")
        _, headers, sent = school.upstream.seen[0]
        assert sent["stream_options"] == {"other": 1, "include_usage": True}
        assert headers["Accept"] == "text/event-stream"
        usage = school.gate.usage("g")
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["unmetered"]) == (7, 3, 0)

    school(test)


def test_streams_of_the_other_formats_are_counted(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        school.upstream.answer = helpers.sse(
            {
                "type": "message_start",
                "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 100, "output_tokens": 1}},
            },
            {"type": "message_delta", "usage": {"output_tokens": 4}},
        )
        async with school.client().post("/v1/messages", json=helpers.chat(stream=True)) as answer:
            await answer.read()
        school.upstream.answer = helpers.sse(
            {"type": "response.completed", "response": {"usage": {"input_tokens": 20, "output_tokens": 6}}},
        )
        async with school.client().post("/v1/responses", json=helpers.chat(stream=True)) as answer:
            await answer.read()
        usage = school.gate.usage("g")
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (129, 10)
        assert all("stream_options" not in body for _, _, body in school.upstream.seen)

    school(test)


def test_omniroutes_own_numbers_win_over_its_estimates(school, helpers):
    # the end of a stream as OmniRoute 3.7.9 sent it for /v1/messages
    tail = (
        'data: {"type":"message_delta","usage":{"input_tokens":127,"output_tokens":13,"estimated":true}}\n\n'
        ": x-omniroute-cache-hit=false\n: x-omniroute-tokens-in=6\n: x-omniroute-tokens-out=32\n"
        "data: [DONE]\n\n"
    )

    async def test(school):
        async def answer(request, _body):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for letter in tail:  # a chunk may end anywhere
                await response.write(letter.encode())
            return response

        school.upstream.answer = answer
        await school.gate.put("g", helpers.terms())
        async with school.client().post("/v1/messages", json=helpers.chat(stream=True)) as answer:
            assert (await answer.text()) == tail
        usage = school.gate.usage("g")
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6, 32)

    school(test)


def test_a_client_that_goes_away_in_mid_stream_ends_the_call_upstream(school, helpers):
    async def test(school):
        never = asyncio.Event()
        school.upstream.answer = helpers.sse(
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, hold=never
        )
        await school.gate.put("g", helpers.terms())
        client = school.client()
        answer = await client.post(CHAT, json=helpers.chat(stream=True))
        await answer.content.readline()
        answer.close()
        await helpers.until(lambda: not school.gate.usage("g")["in_flight"])
        usage = school.gate.usage("g")
        assert (usage["failed"], usage["prompt_tokens"], usage["last_error"]["code"]) == (1, 7, "client_gone")
        never.set()
        await helpers.until(lambda: school.upstream.open == 0)
        await helpers.until(lambda: school.gate.log.read(bead="bead-1"))
        assert school.gate.log.read(bead="bead-1")[0]["code"] == "client_gone"

    school(test)


def test_a_client_that_goes_away_before_the_answer_leaves_an_unmetered_call(school, helpers):
    async def test(school):
        never = asyncio.Event()

        async def hang(_request, _body):
            await never.wait()
            return web.Response()

        school.upstream.answer = hang
        await school.gate.put("g", helpers.terms())
        task = asyncio.create_task(school.client().post(CHAT, json=helpers.chat()))
        await helpers.until(lambda: school.upstream.open == 1)
        task.cancel()
        await helpers.until(lambda: not school.gate.usage("g")["in_flight"])
        usage = school.gate.usage("g")
        assert (usage["unmetered"], usage["cost_usd"]) == (1, None)
        never.set()

    school(test)


def test_an_upstream_that_hangs_is_a_timeout(school, helpers):
    async def test(school):
        never = asyncio.Event()

        async def hang(_request, _body):
            await never.wait()
            return web.Response()

        school.upstream.answer = hang
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            assert answer.status == 504
            assert (await answer.json())["error"]["code"] == "upstream_timeout"
        never.set()

    school(test, silence=0.3)


def test_an_upstream_that_is_not_there_is_named(school, helpers):
    async def test(school):
        await school.stop_gate()
        await school.start_gate("http://127.0.0.1:1")
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            assert answer.status == 502
            assert (await answer.json())["error"]["code"] == "upstream_unavailable"
            assert answer.headers["Retry-After"] == "2"
        usage = school.gate.usage("g")
        assert (usage["failed"], usage["unmetered"], usage["cost_usd"]) == (1, 0, 0)

    school(test)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_errors_from_upstream_pass_with_their_body_and_retry_after(school, helpers, status):
    async def test(school):
        async def fail(_request, _body):
            headers = {"Retry-After": "7", "Set-Cookie": "a=b"}
            return web.json_response({"error": {"message": "no"}}, status=status, headers=headers)

        school.upstream.answer = fail
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            assert answer.status == status
            assert (await answer.json())["error"]["message"] == "no"
            assert answer.headers["Retry-After"] == "7"
            assert "Set-Cookie" not in answer.headers
        usage = school.gate.usage("g")
        assert (usage["failed"], usage["last_error"]["status"], usage["cost_usd"]) == (1, status, 0)

    school(test)


def test_a_redirect_from_upstream_is_not_followed(school, helpers):
    async def test(school):
        async def away(_request, _body):
            return web.Response(status=302, headers={"Location": "http://169.254.169.254/"})

        school.upstream.answer = away
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat(), allow_redirects=False) as answer:
            assert answer.status == 502
            assert "Location" not in answer.headers

    school(test)


def test_a_stream_that_upstream_breaks_off_does_not_look_complete(school, helpers):
    async def test(school):
        async def broken(request, _body):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"data: {}\n\n")
            request.transport.close()
            return response

        school.upstream.answer = broken
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat(stream=True)) as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        usage = school.gate.usage("g")
        assert (usage["failed"], usage["unmetered"], usage["last_error"]["code"]) == (1, 1, "upstream_broken")

    school(test)


def test_the_models_are_the_grants_own(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(models=["m", "auto/coding:reliable"]))
        async with school.client().get("/v1/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["m", "auto/coding:reliable"]
        assert school.upstream.seen == []

    school(test)


def test_rehearsed_answers_are_marked(school, helpers):
    async def test(school):
        async def rehearsed(_request, _body):
            return web.json_response({"model": "school/rehearsal"})

        await school.gate.put("named", helpers.terms(rehearsal_models=["m"]))
        await school.gate.put("shown", helpers.terms())
        await school.gate.put("real", helpers.terms())
        for grant in ("named", "real"):
            async with school.client(grant).post(CHAT, json=helpers.chat()) as answer:
                await answer.read()
        school.upstream.answer = rehearsed
        async with school.client("shown").post(CHAT, json=helpers.chat()) as answer:
            await answer.read()
        assert {name: school.gate.usage(name)["rehearsal"] for name in ("named", "shown", "real")} == {
            "named": True,
            "shown": True,
            "real": False,
        }

    school(test)


def test_a_teachers_calls_count_for_the_bead_it_names_and_a_students_never_do(school, helpers):
    async def test(school):
        await school.gate.put("teacher-cto", helpers.terms(kind="teacher", bead=None))
        await school.gate.put("g", helpers.terms())
        for grant in ("teacher-cto", "g"):
            for bead in ("bead-7", "../evil"):
                headers = {"X-School-Bead": bead}
                async with school.client(grant).post(CHAT, json=helpers.chat(), headers=headers) as answer:
                    await answer.read()
        assert set(school.gate.usage("teacher-cto")["by_bead"]) == {"bead-7"}
        assert set(school.gate.usage("g")["by_bead"]) == {"bead-1"}

    school(test)


def test_a_thousand_calls_leak_neither_files_nor_tasks(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        client = school.client()

        async def one(number):
            async with client.post(CHAT, json=helpers.chat(stream=bool(number % 2))) as answer:
                await answer.read()

        async def batch(size):
            await asyncio.gather(*(one(number) for number in range(size)))

        await batch(20)
        files, tasks = helpers.open_files(), len(asyncio.all_tasks())
        for _ in range(50):
            await batch(20)
        assert school.gate.usage("g")["calls"] == 1020
        assert helpers.open_files() <= files + 5
        assert len(asyncio.all_tasks()) <= tasks + 5
        assert school.gate.usage("g")["in_flight"] == 0

    school(test)
