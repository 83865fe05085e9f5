"""The school's budget of a day: over all grants, exact under parallel calls, kept over a restart."""

from __future__ import annotations

import asyncio
import time

import pytest

from orchestrator.gate.day import Day
from orchestrator.gate.grants import Counters, Limits, near

CHAT = "/v1/chat/completions"


async def code_of(client, body):
    async with client.post(CHAT, json=body) as answer:
        data = await answer.json()
        return answer.status, "" if answer.status == 200 else data["error"]["code"]


def test_all_grants_together_stop_at_the_days_calls(school, helpers):
    async def test(school):
        for name in ("a", "b"):
            await school.gate.put(name, helpers.terms())
        async with school.control_client().put("/day", json={"calls": 5}) as answer:
            assert (await answer.json())["limits"]["calls"] == 5
        clients = [school.client("a"), school.client("b")]
        codes = await asyncio.gather(*(code_of(client, helpers.chat()) for client in clients for _ in range(10)))
        assert codes.count((200, "")) == 5
        assert codes.count((403, "budget_exhausted")) == 15
        assert len(school.upstream.seen) == 5
        assert {school.gate.usage(name)["stopped"] for name in ("a", "b")} == {"day-calls"}

    school(test)


@pytest.mark.parametrize("limits", [{"tokens": 40}, {"cost_usd": 0.00005}])
def test_tokens_and_cost_are_overrun_by_one_call_at_most(school, helpers, limits):
    async def test(school):
        for name in ("a", "b"):
            await school.gate.put(name, helpers.terms())
        school.gate.limit_day(Limits.parse(limits))
        clients = [school.client("a"), school.client("b")]
        for _ in range(6):
            await asyncio.gather(*(code_of(client, helpers.chat()) for client in clients))
        assert len(school.upstream.seen) == 3  # 15 tokens each: the third passes the limit

    school(test)


def test_it_survives_a_restart_and_a_later_limit_counts_at_once(school, helpers):
    async def test(school):
        await school.gate.put("a", helpers.terms())
        school.gate.limit_day(Limits(calls=3))
        client = school.client("a")
        assert await code_of(client, helpers.chat()) == (200, "")
        await school.stop_gate()
        await school.start_gate(school.url)
        assert school.gate.day.as_json()["calls"] == 1
        assert school.gate.day.limits.calls == 3
        school.gate.limit_day(Limits(calls=1))
        assert await code_of(school.client("a"), helpers.chat()) == (403, "budget_exhausted")
        school.gate.limit_day(Limits())
        assert await code_of(school.client("a"), helpers.chat()) == (200, "")

    school(test)


def test_midnight_begins_anew(monkeypatch):
    day = Day(Limits(calls=2))
    day.today().calls = 2
    monkeypatch.setattr(time, "gmtime", lambda *_: time.struct_time((2030, 1, 2, 0, 0, 0, 2, 2, 0)))
    assert day.today().calls == 0
    assert day.date == "2030-01-02"


@pytest.mark.parametrize("body", [[], {"calls": -1}, {"tokens": 1.5}, {"cost_usd": "much"}, {"calls": True}])
def test_a_malformed_limit_is_refused(school, body):
    async def test(school):
        async with school.control_client().put("/day", json=body) as answer:
            assert answer.status == (200 if body == [] else 400)

    school(test)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"limits": 3}', '{"limits": {"calls": "x"}}'])
def test_a_damaged_file_is_a_day_without_a_limit(school, text):
    async def test(school):
        await school.stop_gate()
        (school.root / "state" / "day.json").write_text(text)
        await school.start_gate(school.url)
        assert school.gate.day.limits == Limits()

    school(test)


def test_four_fifths_are_said():
    used = Counters(calls=8, prompt_tokens=50, completion_tokens=29)
    assert near(Limits(calls=10, tokens=100, cost_usd=1.0), used) == {"calls": 0.8}
    assert near(Limits(), used) == {}
