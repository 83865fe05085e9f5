"""The three agents end to end in a leaf without network, over the gate's socket alone (R-25)."""

from __future__ import annotations

import json

import pytest

from orchestrator.engine.base import LABEL_HOME

pytestmark = pytest.mark.engine

FORMS = {
    "light": [("write_file", {"path": "hello.txt", "content": "hello\n"}), ("bash", {"command": "cat hello.txt"})],
    "hermes": [("write_file", {"path": "hello.txt", "content": "hello\n"}), ("terminal", {"command": "cat hello.txt"})],
}


@pytest.fixture
def image_of(request, image):
    return lambda agent: request.getfixturevalue("hermes_image") if agent == "hermes" else image("student")


@pytest.mark.parametrize("agent", ["light", "hermes"])
def test_it_changes_the_worktree_and_says_so(leaf, image_of, says, agent):
    write, show = FORMS[agent]
    scripted = leaf.model(says("Writing.", write), says("", show), says("Wrote hello.txt."))
    code, events = leaf.start(agent, image_of(agent)).finish()
    assert code == 0
    assert (leaf.workspace / "hello.txt").read_text() == "hello\n"
    assert [event["type"] for event in events[:2]] == ["entry.started", "agent.started"]
    assert [event["name"] for event in events if event["type"] == "tool.call"] == [write[0], show[0]]
    assert all(event["ok"] for event in events if event["type"] == "tool.result")
    outcome = leaf.outcome()
    assert (outcome["status"], outcome["output"], outcome["turns"]) == ("completed", "Wrote hello.txt.", 3)
    assert outcome["usage"] == {"calls": 3, "prompt_tokens": 30, "completion_tokens": 15}
    assert json.loads((leaf.outbox / "bookbag.json").read_text())["output"] == "Wrote hello.txt."
    sent = json.dumps(scripted.requests[0]["body"])
    for part in ("School-Role: coder", "School-Bead: coder-general-0000abcd", "You are patient.", "Write hello.txt"):
        assert part in sent
    assert (leaf.outbox / "events.jsonl").read_bytes() == leaf.container.logs(stdout=True, stderr=False)


@pytest.mark.parametrize("agent", ["light", "hermes"])
@pytest.mark.parametrize(
    ("code", "status"), [("budget_exhausted", "budget_exhausted"), ("model_not_allowed", "model_denied")]
)
def test_a_refusal_of_the_gate_has_its_own_end(leaf, image_of, says, fails, agent, code, status):
    refusal = fails(403, kind="school_gate", code=code, message="That is all.")
    scripted = leaf.model(says("", FORMS[agent][0]), refusal)
    ended, _ = leaf.start(agent, image_of(agent)).finish()
    assert ended == 6
    assert leaf.outcome()["status"] == status
    assert "That is all." in leaf.outcome()["reason"]
    assert len(scripted.requests) <= 4  # it does not insist


@pytest.mark.parametrize("agent", ["light", "hermes"])
def test_a_model_that_answers_nothing_is_a_failure(leaf, image_of, says, agent):
    leaf.model(says(""))
    code, _ = leaf.start(agent, image_of(agent)).finish()
    assert code == 3
    assert leaf.outcome()["status"] == "failed"


@pytest.mark.parametrize("agent", ["light", "hermes"])
def test_a_passing_failure_of_the_model_is_survived(leaf, image_of, says, fails, agent):
    leaf.model(fails(503, Retry_After="1"), says("All is well."))
    code, _ = leaf.start(agent, image_of(agent)).finish()
    assert code == 0


@pytest.mark.parametrize("agent", ["light", "hermes"])
def test_the_turn_limit_is_a_failure(leaf, image_of, says, agent):
    leaf.model(says("", FORMS[agent][1]))
    code, _ = leaf.start(agent, image_of(agent), limits={"wall_s": 60, "turns": 2}).finish()
    assert code == 3


@pytest.mark.parametrize(("agent", "tool"), [("light", "bash"), ("hermes", "terminal")])
def test_the_wall_limit_ends_a_tool_too(leaf, image_of, says, agent, tool):
    leaf.model(says("Working.", (tool, {"command": "sleep 100"})))
    code, _ = leaf.start(agent, image_of(agent), limits={"wall_s": 5, "turns": 10}).finish()
    assert code == 4
    assert leaf.outcome()["status"] == "timed_out"


@pytest.mark.parametrize(("agent", "tool"), [("light", "bash"), ("hermes", "terminal")])
def test_a_stop_from_outside_ends_a_tool_too(leaf, image_of, says, agent, tool):
    leaf.model(says("Working.", (tool, {"command": "touch up; sleep 100"})))
    leaf.start(agent, image_of(agent))
    leaf.until((leaf.workspace / "up").exists)
    leaf.container.kill("SIGTERM")
    code, _ = leaf.finish()
    assert code == 143


@pytest.mark.parametrize(("agent", "tool"), [("hermes", "terminal"), ("light", "bash")])
def test_the_agents_own_things_do_not_reach_its_tools(leaf, image_of, says, agent, tool):
    """A repository's own Python and libraries are what a tool must see."""
    leaf.model(says("", (tool, {"command": "env; command -v python3"})), says("ok"))
    _, events = leaf.start(agent, image_of(agent)).finish()
    (result,) = [event["preview"] for event in events if event["type"] == "tool.result"]
    for name in ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "SCHOOL_EVENTS_FD"):
        assert name not in result


def test_hermes_without_its_layer_names_the_way_out(leaf, image):
    code, _ = leaf.start("hermes", image("student")).finish()
    assert code == 3
    assert "--agent light" in leaf.outcome()["reason"]


def test_the_hermes_layer_needs_nothing_of_the_image_it_is_put_on(client, home, image):
    """Alone, without any C library, shell or Python beside it: so musl and old distributions carry it too."""
    said = client.containers.run(
        image("hermes"),
        ["/school/hermes/bin/python", "-I", "-c", "import ssl, sqlite3, ctypes, run_agent; print('runs')"],
        labels={LABEL_HOME: home.id},
        network_mode="none",
        user=f"{home.uid}:{home.gid}",
        environment={"HOME": "/tmp"},
        tmpfs={"/tmp": ""},
        remove=True,
    )
    assert said == b"runs\n"
