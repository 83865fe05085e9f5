"""The school's budget of a day, on the whole school (R-56)."""

import pytest

from orchestrator.gateway.gate_client import GateClient

pytestmark = [pytest.mark.engine, pytest.mark.standing]


@pytest.fixture
def gate(school):
    client = GateClient(school.home)
    yield client
    client.limit_day({})


def test_it_stops_a_bead_in_mid_run_and_then_begins_none(school, sample, gate):
    used = gate.limit_day({})["calls"]
    done = school.spawn(sample, "[rehearse: loop] Go on.", SCHOOL_DAY_MAX_CALLS=used + 3)
    assert done.report["outcome"] == "budget_exhausted", done.report["reason"]
    assert "for the day" in done.report["reason"]
    assert done.report["usage"]["student"]["calls"] == 3
    refused = school.spawn(sample, "Do it.", SCHOOL_DAY_MAX_CALLS=used + 3)
    assert refused.code == 10
    assert "is spent" in refused.stderr


def test_four_fifths_are_a_warning(school, sample, gate):
    used = gate.limit_day({})["calls"]
    done = school.spawn(sample, "Mend it.", "--max-calls", 5, SCHOOL_DAY_MAX_CALLS=int((used + 40) * 1.05))
    assert any("of the budget of calls were used" in note for note in done.report["diagnostics"]), done.report
