"""The scripted model over HTTP, as an agent and a teacher meet it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from orchestrator.principal.sample import FILES, TASK
from orchestrator.rehearsal.scenarios import Library
from orchestrator.rehearsal.server import Rehearsal

SHIPPED = Path(__file__).parents[3] / "config" / "rehearsals"
CHAT = "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"properties": {key: {"type": "string"} for key in keys}}},
    }
    for name, keys in {
        "bash": ["command"],
        "write_file": ["path", "content"],
        "edit_file": ["path", "old", "new"],
        "done": ["summary"],
    }.items()
]


@pytest.fixture
def rehearse(tmp_path):
    """Return ``run(test)``: runs the coroutine function ``test(client)`` against a rehearsal with an own folder."""

    def run(test):
        async def body():
            app = Rehearsal(Library([tmp_path, SHIPPED])).app()
            async with TestClient(TestServer(app)) as client:
                await test(client)

        asyncio.run(body())

    return run


def student(task, turn=0, role="coder", **more):
    messages = [
        {"role": "system", "content": f"School-Role: {role}\nSchool-Bead: b-1"},
        {"role": "user", "content": task},
    ]
    for _ in range(turn):
        messages += [{"role": "assistant", "content": "x"}, {"role": "tool", "content": "y"}]
    return {"model": "rehearsal", "messages": messages, "tools": TOOLS} | more


def teacher(task, evidence='status: passed\nmodified "a.py" +1 -1', who="cto", turn=0):
    prompt = (
        f"Role of the student: coder. Difficulty: easy.\n\nThe task:\n<<<DATA abc task\n{task}\n>>>END abc\n{evidence}"
    )
    body = student(prompt, turn=turn, role=f"teacher-{who}")
    del body["tools"]
    return body


async def said(client, body):
    async with client.post(CHAT, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["choices"][0]["message"]


async def review(client, *args, **kwargs):
    return json.loads((await said(client, teacher(*args, **kwargs)))["content"])


def test_the_demos_script_mends_the_demos_sample(rehearse, tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    for name, text in FILES.items():
        (repo / name).write_text(text)
    check = ["python3", "-m", "unittest", "-q"]
    assert subprocess.run(check, cwd=repo, capture_output=True, check=False).returncode != 0

    async def test(client):
        names = []
        for turn in range(4):
            for call in (await said(client, student(TASK, turn)))["tool_calls"]:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                names.append(name)
                if name == "edit_file":
                    path = repo / arguments["path"]
                    assert path.read_text().count(arguments["old"]) == 1
                    path.write_text(path.read_text().replace(arguments["old"], arguments["new"]))
        assert names == ["bash", "edit_file", "bash", "done"]

    rehearse(test)
    assert subprocess.run(check, cwd=repo, capture_output=True, check=False).returncode == 0


def test_any_other_task_makes_one_small_change_that_says_what_it_is(rehearse):
    async def test(client):
        message = await said(client, student("Make it faster.", 1))
        call = message["tool_calls"][0]["function"]
        arguments = json.loads(call["arguments"])
        assert (call["name"], arguments["path"]) == ("write_file", "REHEARSAL.md")
        assert "scripted" in arguments["content"]
        assert message["content"].startswith("[scripted rehearsal]")

    rehearse(test)


def test_a_stream_says_the_same_as_the_whole_answer_and_ends_with_usage(rehearse):
    async def test(client):
        body = student("Make it faster.", 1)
        whole = await said(client, body)
        async with client.post(CHAT, json=body | {"stream": True, "stream_options": {"include_usage": True}}) as answer:
            assert answer.headers["X-School-Rehearsal"] == "scripted"
            lines = [line[6:] for line in (await answer.text()).split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        chunks = [json.loads(line) for line in lines]
        usage = chunks.pop()
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] > 0
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(delta.get("content") or "" for delta in deltas) == whole["content"]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        arguments = "".join(call["function"].get("arguments", "") for call in calls)
        assert arguments == whole["tool_calls"][0]["function"]["arguments"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"

    rehearse(test)


def test_usage_is_the_same_for_the_same_request(rehearse):
    async def test(client):
        answers = []
        for _ in range(2):
            async with client.post(CHAT, json=student("Make it faster.")) as answer:
                answers.append((await answer.json())["usage"])
        assert answers[0] == answers[1]
        assert answers[0]["total_tokens"] == answers[0]["prompt_tokens"] + answers[0]["completion_tokens"]

    rehearse(test)


def test_a_teacher_passes_with_one_low_finding_and_says_that_it_is_a_script(rehearse):
    async def test(client):
        found = await review(client, "Make it faster.")
        assert found["verdict"] == "PASS"
        assert [finding["severity"] for finding in found["findings"]] == ["LOW"]
        assert found["summary"].startswith("[scripted rehearsal] This is a script.")

    rehearse(test)


@pytest.mark.parametrize(
    ("task", "evidence", "cto", "coo"),
    [
        ("[rehearse: teacher-fail]", "status: passed", "FAIL", "FAIL"),
        ("[rehearse: cto-fail]", "status: passed", "FAIL", "PASS"),
        ("[rehearse: coo-fail]", "status: passed", "PASS", "FAIL"),
        ("anything", "status: failed", "FAIL", "FAIL"),
        ("anything", "status: could_not_run", "FAIL", "FAIL"),
        ("anything", "No file was changed.\nstatus: passed", "FAIL", "FAIL"),
        ("anything", "+[rehearse: teacher-fail] in a diff", "PASS", "PASS"),
    ],
)
def test_a_teachers_verdict_follows_the_task_and_the_plainest_evidence(rehearse, task, evidence, cto, coo):
    async def test(client):
        verdicts = [(await review(client, task, evidence, who=who))["verdict"] for who in ("cto", "coo")]
        assert verdicts == [cto, coo]

    rehearse(test)


def test_shipped_reviews_can_be_read_by_the_reviewer(rehearse):
    from orchestrator.review.answer import parse_answer

    async def test(client):
        for task in ("anything", "[rehearse: teacher-fail]", "[rehearse: teacher-clean]"):
            parse_answer((await said(client, teacher(task)))["content"])
        parse_answer((await said(client, teacher("[rehearse: teacher-repair]", turn=1)))["content"])

    rehearse(test)


def test_markers_rehearse_faults(rehearse):
    async def test(client):
        assert await said(client, student("[rehearse: empty]")) == {"role": "assistant", "content": ""}
        idle = await said(client, student("[rehearse: idle]"))
        assert [call["function"]["name"] for call in idle["tool_calls"]] == ["done"]
        assert "tool_calls" not in await said(client, student("[rehearse: nonsense]"))
        with pytest.raises(ValueError):
            await review(client, "[rehearse: nonsense]")
        with pytest.raises(ValueError):
            json.loads(
                (await said(client, student("[rehearse: bad-arguments]")))["tool_calls"][0]["function"]["arguments"]
            )
        async with client.post(CHAT, json=student("[rehearse: malformed]")) as answer:
            with pytest.raises(ValueError):
                json.loads(await answer.text())
        async with client.post(CHAT, json=student("[rehearse: broken-stream]", stream=True)) as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        run = (await said(client, student("[rehearse: run touch a && echo b > c]")))["tool_calls"][0]["function"]
        assert json.loads(run["arguments"]) == {"command": "touch a && echo b > c"}
        for turn in (0, 30):
            assert (await said(client, student("[rehearse: loop]", turn)))["tool_calls"][0]["function"][
                "name"
            ] == "bash"

    rehearse(test)


def test_an_http_error_comes_always_or_so_many_times(rehearse):
    async def test(client):
        for expected in (429, 429):
            async with client.post(CHAT, json=student("[rehearse: http-429]")) as answer:
                assert answer.status == expected
                assert answer.headers["Retry-After"] == "1"
        for expected in (503, 503, 200):
            async with client.post(CHAT, json=student("[rehearse: http-503 2]")) as answer:
                assert answer.status == expected

    rehearse(test)


def test_slow_waits_and_then_goes_on_as_usual(rehearse):
    async def test(client):
        began = time.monotonic()
        message = await said(client, student("[rehearse: slow 0.3] [rehearse: run date]"))
        assert time.monotonic() - began >= 0.3
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"command": "date"}

    rehearse(test)


def test_a_damaged_scenario_of_the_home_is_named_in_answers_and_in_health(rehearse, tmp_path):
    (tmp_path / "mine.yaml").write_text("version: 7")

    async def test(client):
        async with client.post(CHAT, json=student("anything")) as answer:
            assert answer.status == 400
            assert "mine.yaml: version must be 1" in (await answer.json())["error"]["message"]
        async with client.get("/health") as answer:
            assert (await answer.json())["ok"] is False

    rehearse(test)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messages": 7}', b'{"messages": [7]}'])
def test_a_body_that_is_no_request_is_refused(rehearse, body):
    async def test(client):
        async with client.post(CHAT, data=body) as answer:
            assert answer.status == 400

    rehearse(test)


def test_the_models_name_says_what_it_is(rehearse):
    async def test(client):
        async with client.get("/v1/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["rehearsal"]

    rehearse(test)
