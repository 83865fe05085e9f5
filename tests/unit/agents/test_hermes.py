"""How Hermes' results are judged, without Hermes; the real package runs in tests/integration/agents."""

from __future__ import annotations

import json

import pytest

from orchestrator.agents import hermes
from orchestrator.agents.brief import read_brief


@pytest.fixture
def run(slot, recorded):
    return hermes.Run(slot.places, read_brief(slot.places), recorded.emit)


def result(**fields):
    return {
        "final_response": "Done.",
        "completed": True,
        "failed": False,
        "interrupted": False,
        "turn_exit_reason": "text_response(finish_reason=stop)",
        "api_calls": 2,
        **fields,
    }


def test_a_text_of_its_own_is_complete(run):
    assert run._ending(result()) == ("completed", "", "Done.")


@pytest.mark.parametrize(
    "fields",
    [
        {"turn_exit_reason": "empty_response_exhausted"},
        {"turn_exit_reason": "max_iterations_reached(10/10)"},
        {"turn_exit_reason": "budget_exhausted"},
        {"turn_exit_reason": "guardrail_halt"},
        {"completed": False},
        {"failed": True, "error": "boom"},
        {"final_response": "  "},
    ],
)
def test_anything_else_is_a_failure_whatever_completed_says(run, fields):
    status, reason, _ = run._ending(result(**fields))
    assert status == "failed"
    assert reason


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ((403, "budget_exhausted", "spent"), "budget_exhausted"),
        ((403, "deadline", "late"), "timed_out"),
        ((403, "revoked", "gone"), "model_denied"),
        ((401, "", "who are you"), "model_denied"),
        ((500, "", "oops"), "failed"),
    ],
)
def test_a_refusal_of_the_gate_is_told_apart(run, last, status):
    run._refusals.last = last
    assert run._ending(result(failed=True, completed=False))[0] == status


def test_a_refusal_that_was_overcome_does_not_count(run):
    run._refusals.last = (404, "", "once")
    assert run._ending(result())[0] == "completed"


@pytest.mark.parametrize("cause", ["timed_out", "interrupted"])
def test_an_interruption_is_named_by_its_cause(run, cause):
    run._interrupt(cause)
    run._interrupt("interrupted")
    assert run._ending(result(interrupted=True))[0] == cause


def test_usage_is_reported_as_it_grows(run, recorded):
    class Agent:
        session_prompt_tokens = 10
        session_completion_tokens = 5

    run._agent = Agent
    run._step(1)
    run._step(2)
    Agent.session_prompt_tokens = 30
    run._ending(result(api_calls=2))
    assert recorded.of("usage")[-1] == {"type": "usage", "calls": 2, "prompt_tokens": 30, "completion_tokens": 5}
    assert [event["n"] for event in recorded.of("turn")] == [1, 2]


def test_its_home_holds_a_lean_config_and_the_persona(slot, monkeypatch):
    (slot.inbox / "SOUL.md").write_text("You are patient.")
    for name in ("HERMES_HOME", "HERMES_DISABLE_LAZY_INSTALLS", "TERMINAL_ENV", "TERMINAL_CWD"):
        monkeypatch.setenv(name, "")
    hermes.make_home(slot.places, read_brief(slot.places))
    home = slot.root / "home" / ".hermes"
    config = json.loads((home / "config.yaml").read_text())
    assert config["model"]["base_url"] == "http://127.0.0.1:0/v1"
    assert config["agent"]["max_turns"] == 10
    assert (home / "SOUL.md").read_text() == "You are patient."


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ('{"exit_code": 0}', True),
        ('{"exit_code": 1}', False),
        ('{"error": "no"}', False),
        ("plain", True),
        ("[]", True),
    ],
)
def test_a_tools_answer_is_good_or_bad(text, ok):
    assert hermes._succeeded(text) is ok
