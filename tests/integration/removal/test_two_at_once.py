"""Two homes on one engine, and two processes that bring one school up at the same time (R-29, R-53)."""

import pytest

from orchestrator.engine.base import LABEL_HOME, LABEL_KIND

pytestmark = pytest.mark.standing


@pytest.fixture
def other(school, engine, tmp_path):
    """A second school on the same engine, not up yet."""
    made = type(school)(tmp_path / "other")
    yield made
    for container in engine.list({LABEL_HOME: made.home.id}):
        engine.remove(container.id)
    engine.remove_network(f"school-{made.home.id}")
    engine.remove_volume(f"school-{made.home.id}-omniroute-data")


def parts(school, engine):
    return {c.labels[LABEL_KIND]: (c.id, c.state) for c in engine.list({LABEL_HOME: school.home.id})}


def test_two_that_bring_one_school_up_end_with_one_of_each_part_and_touch_no_other_home(school, other, engine, sample):
    before = parts(school, engine)
    both = [other.start("up") for _ in range(2)]
    ends = [process.communicate(timeout=500) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert len(engine.list({LABEL_HOME: other.home.id})) == 5
    assert set(parts(other, engine)) == {"omniroute", "gate", "rehearsal", "teacher-cto", "teacher-coo"}
    assert other.spawn(sample, "[rehearse: write made.txt]").report["outcome"] == "accepted"
    assert other.run("gc", "--apply").returncode == 0
    assert other.run("down").returncode == 0
    assert parts(school, engine) == before
    assert {state for _, state in parts(other, engine).values()} == {"exited"}
