"""The network and the gate, from inside a real student of a whole school, over its own socket."""

import pytest

from orchestrator.gateway.gate_client import GateClient

pytestmark = [pytest.mark.engine, pytest.mark.standing]

CALLS = 6
_SAID: list[tuple] = []


@pytest.fixture
def tried(request):
    """(verdicts, the spawn's report, the gate's log of the bead)."""
    if not _SAID:
        school, sample, inside = (request.getfixturevalue(name) for name in ("school", "sample", "inside"))
        done = school.spawn(
            sample, "Attack the gate.", "--agent", "command", "--command", inside.script("network"),
            "--max-calls", CALLS, "--timeout", 280, "--role", "searcher", timeout=580,
        )  # fmt: skip
        assert done.report, done.stderr
        log = GateClient(school.home).log(bead=done.report["bead"], limit=5000)
        _SAID.append((inside.verdicts(done.report["output"]), done, log))
    return _SAID[0]


def test_from_a_student(tried, attack_id):
    said = tried[0].get(attack_id)
    assert said is not None, f"not carried out: {sorted(tried[0])}; {tried[1].report['reason']}"
    assert said["held"] is True, said["detail"]


def test_every_attack_that_was_carried_out_is_in_the_catalogue(tried, catalogue):
    assert set(tried[0]) == {entry["id"] for entry in catalogue if "::test_from_a_student[" in entry["test"]}


def test_the_budget_was_not_passed_and_each_call_counts_for_its_own_bead(tried):
    _, done, log = tried
    assert done.report["usage"]["student"]["calls"] == CALLS
    own = [entry for entry in log if entry["grant"] == done.report["bead"]]  # the others are the judges'
    assert sum(entry["code"] is None for entry in own) == CALLS
    assert {entry["bead"] for entry in own} == {done.report["bead"]}


def test_refusals_are_logged(tried):
    codes = {entry["code"] for entry in tried[2]}
    assert {"route_not_allowed", "model_not_allowed", "budget_exhausted"} <= codes


def test_the_gate_goes_on_for_everybody_else(tried, school):
    gate = GateClient(school.home)
    assert gate.health()["ok"] is True
    assert all(grant["kind"] == "teacher" for grant in gate.grants())
