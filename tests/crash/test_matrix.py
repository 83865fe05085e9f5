"""The principal is killed after (and before) every effect of a bead's way; nothing is left and nothing is lost.

The fault points are those that an undisturbed bead passes: a new step can't be forgotten (R-49, R-50, R-54).
"""

import pytest

from orchestrator.sandbox.outcome import Outcome

pytestmark = pytest.mark.standing

KILLED = -9


@pytest.fixture(scope="module")
def points(crashes, tmp_path_factory):
    """Every fault point of one accepted bead, in the order of the way."""
    trace = tmp_path_factory.mktemp("trace") / "points"
    bead = crashes.bead()
    assert crashes.drive_all([(bead, "", {})], SCHOOL_FAULT_TRACE=str(trace)) == {bead: 0}
    found = list(dict.fromkeys(trace.read_text().split()))
    steps = {event["step"] for event in crashes.events(bead) if event["kind"] == "intent"}
    assert len(steps) >= 15
    assert {point for step in steps for point in (f"{step}:intent", step)} <= set(found)
    assert crashes.left(bead) == []
    return found


def effects(points):
    """The points right after effects: an intent's point differs from the one before it by a note alone."""
    return [point for point in points if not point.endswith(":intent")]


def crash_everywhere(crashes, points, wanted):
    """Kill one principal at each wanted point and return the bead of each."""
    beads = {point: crashes.bead() for point in wanted}
    late = points.index("stage.frozen")  # a bead that dies before is verified only if the recovery goes on with it
    jobs = [(bead, point, {} if points.index(point) >= late else {"verify": ""}) for point, bead in beads.items()]
    ended = crashes.drive_all(jobs)
    assert {point: ended[bead] for point, bead in beads.items()} == dict.fromkeys(wanted, KILLED)
    return beads


def check(crashes, points, beads, *, finishes):
    """Nothing is left of any bead, its record is typed, its work is kept; return what is wrong."""
    wrong = {point: found for point, bead in beads.items() if (found := crashes.left(bead))}
    started, seen, ended = (points.index(point) for point in ("run:intent", "run", "grant_closed:intent"))
    for point, bead in beads.items():
        position = points.index(point)
        row, problems = crashes.row(bead), wrong.setdefault(point, [])
        if position >= seen and not crashes.ref(bead):
            problems.append("its work is lost")
        if crashes.ref(bead) and row["head_sha"] != crashes.ref(bead):
            problems.append("the record does not name its commit")
        if position <= started and row["outcome"] != Outcome.LOST:
            problems.append(f"outcome {row['outcome']} of a student that never ran")
        late = position >= (ended if finishes else points.index("outcome"))
        if late and row["outcome"] != Outcome.ACCEPTED:
            problems.append(f"outcome {row['outcome']} ({row['data'].get('reason')})")
        if row["outcome"] == Outcome.ACCEPTED:
            if crashes.scored(bead) != 1:
                problems.append(f"scored {crashes.scored(bead)} times")
            if crashes.git("rev-parse", f"school/{bead}") != row["head_sha"]:
                problems.append("no branch")
            if not row["data"]["report"]["branch"]:
                problems.append("no branch in the report")
    return {point: found for point, found in wrong.items() if found}


def test_a_resume_finishes_what_died_anywhere(crashes, points, bystanders):
    beads = crash_everywhere(crashes, points, points)
    done = crashes.school.run("resume", timeout=600)
    assert done.returncode == 0, done.stderr
    assert check(crashes, points, beads, finishes=True) == {}
    assert crashes.left_anywhere() == []


def test_a_janitor_finishes_what_died_anywhere(crashes, points, bystanders):
    beads = crash_everywhere(crashes, points, effects(points))
    crashes.janitor()
    assert check(crashes, points, beads, finishes=True) == {}
    assert crashes.left_anywhere() == []


def test_a_sweep_alone_removes_what_died_anywhere(crashes, points, bystanders):
    beads = crash_everywhere(crashes, points, effects(points))
    crashes.sweep()
    assert check(crashes, points, beads, finishes=False) == {}
    assert crashes.left_anywhere() == []


@pytest.mark.parametrize("point", ["dispose.containers", "dispose.worktree", "grant_closed.gate", "archive", "ended"])
def test_a_resumer_that_dies_is_followed_by_another(crashes, point):
    """The removal itself is cut off, at each of its parts; the next one ends it."""
    bead = crashes.bead()
    crashes.drive_all([(bead, "container", {})])
    died = crashes.school.run("resume", bead, SCHOOL_FAULT_AT=point)
    assert died.returncode == KILLED
    crashes.janitor()
    assert crashes.left(bead) == []
    assert crashes.left_anywhere() == []


def test_a_bead_whose_repository_is_gone_is_removed_all_the_same(crashes, tmp_path):
    from orchestrator.git.removal import remove_tree
    from orchestrator.principal.sample import make_sample

    repo = make_sample(tmp_path / "gone")
    beads = {point: crashes.bead() for point in ("worktree", "container", "freeze", "ref", "bookbag", "outcome")}
    crashes.drive_all([(bead, point, {"repo": str(repo)}) for point, bead in beads.items()])
    remove_tree(repo)
    crashes.sweep()
    assert {point: crashes.left(bead) for point, bead in beads.items()} == {point: [] for point in beads}
    assert crashes.left_anywhere() == []
