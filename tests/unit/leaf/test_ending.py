"""From the engine's, the gate's and the entry point's word to a typed outcome."""

import pytest

from orchestrator.engine.base import Exited, Lost, Rejected, Running
from orchestrator.leaf.ending import classify
from orchestrator.sandbox.outcome import Outcome


@pytest.mark.parametrize(
    ("result", "more", "outcome"),
    [
        (Exited(0), {}, None),
        (Exited(0, oom=True), {}, None),  # a child was killed and the agent went on
        (Exited(3), {}, Outcome.TASK_FAILED),
        (Exited(1), {}, Outcome.TASK_FAILED),
        (Exited(4), {}, Outcome.TIMED_OUT),
        (Exited(137), {"deadline_passed": True}, Outcome.TIMED_OUT),
        (Exited(137), {}, Outcome.LOST),  # killed from outside: no student can do that to its first process
        (Exited(137, oom=True), {}, Outcome.OUT_OF_MEMORY),
        (Exited(3, oom=True), {}, Outcome.OUT_OF_MEMORY),
        (Exited(5), {}, Outcome.OUT_OF_MEMORY),
        (Exited(6), {"usage": {"stopped": "calls", "calls": 3}}, Outcome.BUDGET_EXHAUSTED),
        (Exited(3), {"usage": {"stopped": "cost", "calls": 3}}, Outcome.BUDGET_EXHAUSTED),
        (Exited(6), {"usage": {"stopped": "revoked", "calls": 3}}, Outcome.GATEWAY_DENIED),
        (Exited(6), {}, Outcome.GATEWAY_DENIED),
        (Exited(3), {"usage": {"calls": 2, "failed": 2, "refused": 0}}, Outcome.GATEWAY_DENIED),
        (Exited(3), {"usage": {"calls": 2, "failed": 1, "refused": 0}}, Outcome.TASK_FAILED),
        (Exited(3), {"usage": {"calls": 0, "failed": 0, "refused": 0}}, Outcome.TASK_FAILED),
        (Exited(0), {"disk_exceeded": "too much"}, Outcome.DISK_EXCEEDED),
        (Lost("engine"), {}, Outcome.LOST),
        (Running("engine"), {}, Outcome.LOST),
        (Rejected("no"), {}, Outcome.SANDBOX_UNAVAILABLE),
    ],
)
def test_classify(result, more, outcome):
    ending = classify(result, **more)
    assert ending.outcome == outcome
    assert ending.reason
