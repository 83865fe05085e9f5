"""gc, doctor and ps on a school that stands: what they name, what they remove, what they never touch (R-27, R-54)."""

import contextlib
import json
import os
import secrets
import subprocess
import time

import pytest

from orchestrator.engine.base import LABEL_BEAD, LABEL_DEADLINE, LABEL_HOME, LABEL_KIND, ContainerSpec, Kind
from orchestrator.principal.ledger import Ledger

pytestmark = pytest.mark.standing

MADE = "[rehearse: write made.txt]"
LONG_AGO = 1_000_000_000


@pytest.fixture
def stray(engine, image):
    """Return a function that makes a container with some labels, created only; all are removed at the end."""
    made = []

    def make(labels, *, start=False):
        name = f"stray-{secrets.token_hex(4)}"
        spec = ContainerSpec(image=image("base"), name=name, labels=labels, entrypoint=("sleep", "600"))
        made.append(engine.create(spec))
        if start:
            engine.start(made[-1])
        return name, made[-1]

    yield make
    for container in made:
        engine.remove(container)


def gc(school, *options, **env):
    done = school.run("gc", "--json", *options, **env)
    assert done.returncode == 0, done.stderr
    return [
        (item["kind"], item["name"], item["removed"]) for item in json.loads(done.stdout) if item["kind"] != "image"
    ]


def test_gc_shows_first_and_removes_only_when_it_is_told_to(school, engine, stray):
    """An orphan of this home: a container that was created and never started, whose bead no ledger knows."""
    bead = f"coder-stray-{secrets.token_hex(4)}"
    name, container = stray({LABEL_HOME: school.home.id, LABEL_KIND: Kind.LEAF, LABEL_BEAD: bead})
    folder = school.home.leaves / bead
    (folder / "outbox").mkdir(parents=True)
    wanted = [("container", name), ("folder", bead)]
    assert gc(school) == [(*item, None) for item in wanted]
    assert engine.inspect(container)
    assert gc(school, "--apply") == [(*item, True) for item in wanted]
    assert engine.list({LABEL_HOME: school.home.id, LABEL_BEAD: bead}) == []
    assert not folder.exists()
    assert gc(school) == []


def test_gc_never_touches_another_homes(school, engine, stray):
    other = {LABEL_KIND: Kind.LEAF, LABEL_BEAD: "coder-other-00000001", LABEL_DEADLINE: str(LONG_AGO)}
    kept = [stray({**other, LABEL_HOME: school.home.id + "0"}), stray({**other, LABEL_HOME: ""}), stray({})]
    assert gc(school, "--apply") == []
    assert all(engine.inspect(container) for _, container in kept)


def test_a_kept_leaf_goes_with_kept(school, sample, engine):
    spawned = school.spawn(sample, MADE, "--keep")
    bead = spawned.report["bead"]
    assert spawned.report["cleanup"] == "kept"
    assert len(engine.list({LABEL_HOME: school.home.id, LABEL_BEAD: bead})) == 1
    assert gc(school) == []
    assert gc(school, "--apply", "--kept") == [("kept leaf", bead, True)]
    assert engine.list({LABEL_HOME: school.home.id, LABEL_BEAD: bead}) == []
    assert not (school.home.leaves / bead).exists()
    assert not list((sample / ".git" / "worktrees").glob("*"))


def test_what_is_older_than_the_retention_goes_unless_a_person_still_has_to_answer(school, sample):
    waiting = school.spawn(sample, MADE).report["bead"]
    answered = school.spawn(sample, MADE).report["bead"]
    with Ledger(school.home.ledger) as ledger:
        ledger.update_bead(answered, human="declined")
        with ledger.transaction() as database:
            database.execute("UPDATE beads SET updated=? WHERE bead IN (?, ?)", (LONG_AGO, waiting, answered))
    for bead in (waiting, answered):
        for path in (
            school.home.archive / f"{bead}.json",
            school.home.evidence / bead,
            school.home.logs / "beads" / f"{bead}.jsonl",
        ):
            os.utime(path, (LONG_AGO, LONG_AGO))
    found = gc(school, "--apply")
    assert {kind for kind, _, _ in found} == {"ref", "archive", "evidence", "log"}
    assert all(answered in name and removed for _, name, removed in found)
    refs = subprocess.run(
        ["git", "-C", str(sample), "for-each-ref", "--format=%(refname)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert f"refs/school/{waiting}" in refs
    assert f"refs/school/{answered}" not in refs
    assert f"refs/heads/school/{answered}" in refs  # a branch is the person's
    assert (school.home.archive / f"{waiting}.json").exists()


def test_ps_and_doctor_name_what_is_overdue_and_not_provably_ours(school, stray):
    labels = {LABEL_KIND: Kind.LEAF, LABEL_BEAD: "coder-other-00000002", LABEL_DEADLINE: str(LONG_AGO)}
    name, container = stray({**labels, LABEL_HOME: "another"}, start=True)
    young, _ = stray({**labels, LABEL_HOME: "another", LABEL_DEADLINE: str(int(time.time()) + 600)}, start=True)
    shown = school.run("ps")
    assert f"{name} (leaf of home another)" in shown.stderr
    assert f"docker rm -f {container[:12]}" in shown.stderr
    assert young not in shown.stderr
    checks = {check["name"]: check for check in json.loads(school.run("doctor", "--json").stdout)}
    assert name in checks["strangers"]["detail"]
    assert container[:12] in checks["strangers"]["next_step"]


def test_doctor_finds_everything_well_on_a_school_that_is_up(school):
    done = school.run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0, checks
    assert [check for check in checks.values() if check["status"] == "fail"] == []
    assert {"engine", "users", "cgroup", "git", "disk home", "images", "folders", "parts", "gateway", "gate"} <= set(
        checks
    )
    assert {"clock", "ledger", "left over", "strangers"} <= set(checks)
    assert "ok" in school.run("doctor").stdout


def test_doctor_fails_with_the_next_step_when_a_part_is_missing(school, engine):
    from orchestrator.sandbox.standing import parts

    rehearsal = next(c for c in parts(engine, school.home) if c.labels[LABEL_KIND] == Kind.REHEARSAL)
    engine.stop(rehearsal.id, grace=1)
    try:
        done = school.run("doctor", "--json")
    finally:
        engine.start(rehearsal.id)
    check = next(check for check in json.loads(done.stdout) if check["name"] == "parts")
    assert done.returncode == 1
    assert (check["status"], check["next_step"]) == ("fail", "school up repairs them.")
    assert "rehearsal" in check["detail"]


def test_doctor_without_an_engine_says_so_and_stops_there(school, tmp_path):
    done = school.run("doctor", "--json", DOCKER_HOST=f"unix://{tmp_path}/nobody.sock")
    checks = json.loads(done.stdout)
    assert done.returncode == 1
    assert checks[-1]["name"] == "engine"
    assert checks[-1]["status"] == "fail"
    assert checks[-1]["next_step"]


def test_doctor_names_an_abandoned_bead(school, sample):
    from orchestrator.principal.janitor import lock_path
    from orchestrator.principal.lease import Lease

    deadline = time.monotonic() + 60
    while (lease := Lease.take(lock_path(school.home.leases))) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with contextlib.closing(_Releases(lease)):
        dead = school.spawn(sample, MADE, SCHOOL_FAULT_AT="container")
        assert dead.code == -9
        done = school.run("doctor", "--json", SCHOOL_JANITOR="false")
        check = next(check for check in json.loads(done.stdout) if check["name"] == "left over")
        assert (check["status"], check["next_step"]) == ("warn", "school resume")
        assert school.run("resume").returncode == 0
    done = school.run("doctor", "--json")
    assert next(c for c in json.loads(done.stdout) if c["name"] == "left over")["status"] == "ok"


def test_down_refuses_while_a_bead_runs_and_by_force_cancels_it_first(school, sample, engine):
    done = school.run("spawn", "--detach", "--json", "--repo", sample, "--agent", "light", "[rehearse: run sleep 300]")
    bead = json.loads(done.stdout)["bead"]
    labels = {LABEL_HOME: school.home.id, LABEL_BEAD: bead}
    deadline = time.monotonic() + 60
    while not [c for c in engine.list(labels) if c.state == "running"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    refused = school.run("down")
    assert refused.returncode == 2
    assert bead in refused.stderr
    try:
        forced = school.run("down", "--force")
        assert forced.returncode == 0, forced.stderr
        assert f"bead {bead} (cancelled)" in forced.stderr
        assert engine.list(labels) == []
        with Ledger(school.home.ledger) as ledger:
            row = ledger.bead(bead)
        assert (row["outcome"], row["cleanup"]) == ("cancelled", "done")
        assert not (school.home.leaves / bead).exists()
    finally:
        assert school.run("up").returncode == 0


class _Releases:
    def __init__(self, lease):
        self.close = lease.release
