"""Agent light over a scripted model: the loop, its limits, and honest endings."""

from __future__ import annotations

import json

import pytest

from orchestrator.agents import light


@pytest.fixture
def run(slot, recorded):
    def go():
        import signal

        before = signal.getsignal(signal.SIGTERM)
        try:
            assert light.run(slot.places, recorded.emit) == 0
        finally:
            signal.signal(signal.SIGTERM, before)
        return recorded.result

    return go


def test_it_works_until_done(slot, model, says, recorded, run):
    model(
        says("Writing.", ("write_file", {"path": "hello.txt", "content": "hello\n"})),
        says("", ("bash", {"command": "cat hello.txt"})),
        says("", ("done", {"summary": "Wrote hello.txt."})),
    )
    assert run() == {"type": "result", "status": "completed", "reason": "", "output": "Wrote hello.txt."}
    assert (slot.workspace / "hello.txt").read_text() == "hello\n"
    kinds = [event["type"] for event in recorded.events]
    assert kinds[:6] == ["agent.started", "turn", "usage", "message", "tool.call", "tool.result"]
    assert recorded.of("usage")[-1] == {"type": "usage", "calls": 3, "prompt_tokens": 30, "completion_tokens": 15}
    assert recorded.of("tool.result")[1]["preview"] == "hello\n[exit code 0]"


def test_the_prompt_names_role_and_bead_and_carries_persona_and_instructions(slot, model, says, run):
    (slot.inbox / "SOUL.md").write_text("You are patient.")
    (slot.inbox / "INSTRUCTIONS.md").write_text("Use tabs.")
    scripted = model(says("done"))
    run()
    system, user = scripted.requests[0]["body"]["messages"]
    assert system["content"].splitlines()[:2] == ["School-Role: coder", "School-Bead: coder-general-0000abcd"]
    assert "You are patient." in system["content"]
    assert "Use tabs." in system["content"]
    for part in ("Write hello.txt", "Change nothing else", "a diff", "make test", "hello.txt exists"):
        assert part in user["content"]


def test_several_calls_in_one_reply_are_all_answered(slot, model, says, run):
    scripted = model(
        says("", ("write_file", {"path": "a", "content": "1"}), ("bash", "{broken"), ("nope", {})),
        says("fine"),
    )
    assert run()["status"] == "completed"
    answers = scripted.requests[1]["body"]["messages"][3:]
    assert [answer["tool_call_id"] for answer in answers] == ["call_0", "call_1", "call_2"]
    assert "not valid JSON" in answers[1]["content"]
    assert "there is no tool" in answers[2]["content"]
    sent_back = scripted.requests[1]["body"]["messages"][2]["tool_calls"][1]["function"]["arguments"]
    assert json.loads(sent_back) == {}


def test_a_text_without_a_call_is_the_last_word(model, says, run):
    model(says("Nothing to change."))
    assert run()["output"] == "Nothing to change."


def test_a_student_that_gives_up_is_a_failure(model, says, run):
    model(says("", ("done", {"summary": "No compiler here.", "success": False})))
    result = run()
    assert (result["status"], result["output"]) == ("failed", "No compiler here.")


def test_empty_replies_are_asked_again_and_then_fail(model, says, run):
    scripted = model(says(""))
    assert run()["status"] == "failed"
    assert len(scripted.requests) == 3


def test_a_cut_reply_is_not_the_last_word(model, says, run):
    model(says("I will now", finish="length"), says("finished"))
    assert run()["output"] == "finished"


def test_a_filtered_reply_is_a_failure(model, says, run):
    model(says("", finish="content_filter"))
    assert "content filter" in run()["reason"]


def test_the_turn_limit_holds(slot, model, says, run):
    slot.brief(limits={"wall_s": 30, "turns": 3})
    scripted = model(says("", ("bash", {"command": "true"})))
    result = run()
    assert result["status"] == "failed"
    assert "3 turns" in result["reason"]
    assert len(scripted.requests) == 3


def test_the_wall_limit_holds(slot, model, says, run):
    slot.brief(limits={"wall_s": 0.7, "turns": 1000})
    model(says("", ("bash", {"command": "sleep 30"})))
    assert run()["status"] == "timed_out"


def test_a_budget_spent_in_mid_run_keeps_what_was_said(model, says, fails, recorded, run):
    model(says("Half way.", ("bash", {"command": "true"})), fails(403, kind="school_gate", code="budget_exhausted"))
    result = run()
    assert (result["status"], result["output"]) == ("budget_exhausted", "Half way.")
    assert recorded.of("error")


def test_a_context_overflow_shortens_the_conversation(slot, model, says, fails, recorded, run):
    (slot.workspace / "big").write_text("x" * 40_000)
    read = says("", ("read_file", {"path": "big"}))
    model(*[read] * 6, fails(400, code="context_length_exceeded"), says("fits"))
    assert run()["output"] == "fits"
    assert "too long" in recorded.of("warning")[0]["text"]


def test_a_task_that_never_fits_is_named(model, fails, run):
    model(fails(400, code="context_length_exceeded"))
    assert "does not fit" in run()["reason"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"bead": "x", "role": "coder", "task": ""}'])
def test_a_brief_that_is_none_is_a_failure(slot, recorded, run, text):
    (slot.inbox / "brief.json").write_text(text)
    result = run()
    assert result["status"] == "failed"
    assert "brief" in result["reason"]
