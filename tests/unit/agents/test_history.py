"""The light agent's conversation stays within its budget and stays valid."""

from __future__ import annotations

from orchestrator.agents.history import GAP, STUB, History
from orchestrator.agents.model import Reply, ToolCall


def turn(history, number, size=1000, arguments="{}"):
    history.add_reply(Reply(f"step {number}", [ToolCall(f"c{number}", "bash", arguments)], "tool_calls", 1, 1))
    history.add_result(f"c{number}", "x" * size)


def is_valid(messages):
    """Each tool result answers a call of the assistant message before it."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
        else:
            open_calls = {call["id"] for call in message.get("tool_calls", [])}
    return True


def test_a_short_conversation_is_left_alone():
    history = History("system", "task", budget=10_000)
    turn(history, 1)
    before = list(history.messages)
    assert not history.fit()
    assert history.messages == before


def test_old_results_go_first_and_recent_ones_stay():
    history = History("system", "task", budget=12_000)
    for number in range(20):
        turn(history, number)
    assert history.fit()
    assert history.size <= 12_000
    results = [message["content"] for message in history.messages if message["role"] == "tool"]
    assert results[0] == STUB
    assert results[-1] == "x" * 1000
    assert is_valid(history.messages)


def test_whole_steps_go_when_results_are_not_enough():
    history = History("system", "task", budget=3_000)
    for number in range(60):
        turn(history, number, size=10, arguments='{"command": "' + "y" * 100 + '"}')
    assert history.fit()
    assert history.size <= 3_000
    assert [message["role"] for message in history.messages[:3]] == ["system", "user", "user"]
    assert history.messages[2]["content"] == GAP
    assert is_valid(history.messages)


def test_halving_makes_room_after_the_model_said_too_long():
    history = History("system", "task")
    for number in range(20):
        turn(history, number)
    before = history.size
    assert history.halve()
    assert history.size <= before // 2
    assert is_valid(history.messages)


def test_nothing_to_give_up_is_said():
    history = History("s" * 1000, "task")
    assert not history.halve()


def test_arguments_that_are_not_json_are_not_sent_back():
    history = History("system", "task")
    turn(history, 1, arguments='{"command": ')
    call = history.messages[2]["tool_calls"][0]
    assert call["function"]["arguments"] == "{}"
