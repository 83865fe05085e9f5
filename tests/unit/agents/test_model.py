"""The light agent's model call: what is retried, what ends the run, and with which status."""

from __future__ import annotations

import email.utils
import time

import pytest

from orchestrator.agents.model import ContextOverflowError, Model, ModelError, parse_retry_after

ASK = ([{"role": "user", "content": "hi"}], [])


@pytest.fixture
def client(slot):
    pauses = []
    warnings = []

    def make(seconds=60.0):
        made = Model(
            str(slot.gate),
            "rehearsal",
            ends_at=time.monotonic() + seconds,
            warn=warnings.append,
            sleep=pauses.append,
        )
        made.pauses, made.warnings = pauses, warnings
        return made

    return make


def test_a_reply_brings_text_calls_and_usage(model, says, client):
    scripted = model(says("hm", ("bash", {"command": "ls"}), ("done", {"summary": "x"})))
    reply = client().complete(*ASK)
    assert (reply.text, [call.name for call in reply.calls]) == ("hm", ["bash", "done"])
    assert (reply.prompt_tokens, reply.completion_tokens) == (10, 5)
    sent = scripted.requests[0]
    assert sent["body"]["stream"] is False
    assert sent["headers"]["Accept"] == "application/json"
    assert "Authorization" not in sent["headers"]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_a_passing_failure_is_tried_again(model, says, fails, client, status):
    model(fails(status), fails(status), says("ok"))
    one = client()
    assert one.complete(*ASK).text == "ok"
    assert len(one.pauses) == 2
    assert 0.3 < one.pauses[0] < one.pauses[1]
    assert f"HTTP {status}" in one.warnings[0]


def test_retry_after_is_obeyed(model, says, fails, client):
    model(fails(429, Retry_After="7"), says("ok"))
    one = client()
    assert one.complete(*ASK).text == "ok"
    assert one.pauses == [7.0]


def test_retry_after_may_be_a_date():
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 25 < parse_retry_after(later) < 31
    assert parse_retry_after("soon") is None
    assert parse_retry_after(None) is None


def test_a_wait_that_is_too_long_ends_the_run(model, fails, client):
    scripted = model(fails(429, Retry_After="100000"))
    with pytest.raises(ModelError, match="asks to wait") as caught:
        client().complete(*ASK)
    assert caught.value.status == "failed"
    assert len(scripted.requests) == 1


def test_a_missing_gate_is_tried_again_and_then_named(client):
    one = client()
    with pytest.raises(ModelError, match="did not answer in 8 attempts") as caught:
        one.complete(*ASK)
    assert caught.value.status == "failed"
    assert max(one.pauses) <= 36


def test_no_retry_goes_past_the_time_limit(model, fails, client):
    model(fails(503, Retry_After="50"))
    with pytest.raises(ModelError) as caught:
        client(seconds=10).complete(*ASK)
    assert caught.value.status == "timed_out"


def test_a_call_that_hangs_ends_with_the_time_limit(model, hangs, client):
    model(hangs(20))
    with pytest.raises(ModelError) as caught:
        client(seconds=0.5).complete(*ASK)
    assert caught.value.status == "timed_out"


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_a_denial_ends_the_run_at_once(model, fails, client, status):
    scripted = model(fails(status, message="not for you"))
    with pytest.raises(ModelError, match="not for you") as caught:
        client().complete(*ASK)
    assert caught.value.status == "model_denied"
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("budget_exhausted", "budget_exhausted"),
        ("deadline", "timed_out"),
        ("model_not_allowed", "model_denied"),
        ("revoked", "model_denied"),
    ],
)
def test_the_gates_refusals_have_their_own_outcomes(model, fails, client, code, status):
    model(fails(403, kind="school_gate", code=code))
    with pytest.raises(ModelError) as caught:
        client().complete(*ASK)
    assert caught.value.status == status


def test_a_providers_own_budget_code_is_not_taken_for_the_gates(model, fails, client):
    model(fails(403, kind="insufficient", code="budget_exhausted"))
    with pytest.raises(ModelError) as caught:
        client().complete(*ASK)
    assert caught.value.status == "model_denied"


def test_a_bad_request_ends_the_run_at_once(model, fails, client):
    scripted = model(fails(400, message="bad field"))
    with pytest.raises(ModelError, match="bad field") as caught:
        client().complete(*ASK)
    assert caught.value.status == "failed"
    assert len(scripted.requests) == 1


def test_a_context_overflow_is_told_apart(model, fails, client):
    model(fails(400, code="context_length_exceeded"))
    with pytest.raises(ContextOverflowError):
        client().complete(*ASK)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"choices": []}', b'{"choices": [{"message": null}]}'])
def test_an_answer_that_is_none_is_tried_again(model, says, client, body):
    model(body, says("ok"))
    assert client().complete(*ASK).text == "ok"


def test_sloppy_answers_are_read(model, client):
    model(
        b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}], "tool_calls": ['
        b'{"id": "1", "function": {"name": "bash", "arguments": {"command": "ls"}}},'
        b'{"id": "1", "function": {"name": "bash", "arguments": null}}, {"function": {}}]}}], "usage": null}'
    )
    reply = client().complete(*ASK)
    assert reply.text == "a"
    assert [call.id for call in reply.calls] == ["1", "1_1", "call_2"]
    assert reply.calls[0].arguments == '{"command": "ls"}'
    assert reply.calls[1].arguments == "{}"
    assert reply.prompt_tokens == 0
