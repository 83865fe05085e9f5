"""The school judges and routes (R-40 to R-46, R-90, R-102), through the command line on real parts."""

import json
import subprocess
import time

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]

NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}
FIX = "mean() of an empty list crashes. Make it return 0.0 and keep the other results."
VERIFY = "python3 -m unittest -q"
WHO = {"GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@x", "GIT_COMMITTER_NAME": "U", "GIT_COMMITTER_EMAIL": "u@x"}


def git(repo, *arguments):
    done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(school, engine):
    yield
    wait_until(lambda: school.traces(engine) == NOTHING)


def wait_until(true, seconds=90.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def said(done, code=0):
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def submit(school, repo, text, name, *more):
    assert school.run("submit", "--repo", repo, "--id", name, *more, text).returncode == 0
    return name


def task(school, name):
    return next(t for t in said(school.run("tasks", "--all", "--json")) if t["id"] == name)


def ledger_row(school, bead):
    from orchestrator.principal.ledger import Ledger

    with Ledger(school.home.ledger) as ledger:
        return ledger.bead(bead)


@pytest.fixture
def scenario(school):
    """Return a function that puts a rehearsal scenario of the test's own in front of the others."""
    path = school.home.rehearsals / "governor.yaml"

    def write(text):
        path.write_text(f"version: 1\norder: 1\nscenarios:\n{text}")

    yield write
    path.unlink(missing_ok=True)


# -- routing ------------------------------------------------------------------------------------------------------------


def test_a_spawn_without_a_role_is_directed_and_says_so(school, sample):
    done = school.run("spawn", "--directed", "--json", "--repo", sample, "--agent", "light", "Where is mean defined?")
    report = said(done)
    assert report["role"] == "searcher"
    assert "director: role: searcher, asks a question" in done.stderr
    assert any(text.startswith("director: ") for text in report["diagnostics"])
    row = ledger_row(school, report["bead"])
    assert (row["data"]["request"]["difficulty"], row["data"]["request"]["profile"]) == ("easy", "student-searcher")
    figures = said(school.run("scores", "--bead", report["bead"], "--json"))
    assert [change["profile"] for change in figures["changes"]] == ["rehearsal:student-searcher"]
    assert {event["source"] for event in figures["feedback"]} == {"cto", "coo"}


def test_nobody_eligible_is_blocked_with_the_reason_and_nothing_is_made(school, sample):
    done = school.run("spawn", "--directed", "--json", "--repo", sample, "--label", "blocker", "Where is mean defined?")
    assert done.returncode == 10
    error = json.loads(done.stdout)
    assert error["error"] == "BlockedError"
    assert "below the gate 75" in error["message"]
    assert "--role searcher" in error["next_step"]


def test_where_no_rule_can_tell_the_model_is_asked_once_through_the_gate(school, scenario):
    scenario(
        "  - name: director\n    match: {roles: [director]}\n    replies:\n"
        '      - text: \'{"role": "reviewer", "domain": "parsing", "difficulty": "easy", "readiness": 9}\'\n'
    )
    done = school.run("route", "--json", "--ask", "Something odd", SCHOOL_DIRECTOR_MODEL="rehearsal")
    found = said(done)
    assert (found["role"]["value"], found["difficulty"]["value"]) == ("reviewer", "easy")
    assert "rehearsal says so" in found["role"]["by"]
    assert found["candidates"][0]["readiness"] == 9
    quiet = said(school.run("route", "--json", "Something odd", SCHOOL_DIRECTOR_MODEL="rehearsal"))
    assert quiet["role"]["value"] == "coder"


# -- a person's word -----------------------------------------------------------------------------------------------------


def test_from_the_inbox_to_the_users_branch(school, sample):
    report = school.spawn(sample, FIX, "--verify", VERIFY).report
    bead, head = report["bead"], report["head_sha"]
    assert bead in [entry["bead"] for entry in said(school.run("inbox", "--json"))]
    assert school.run("apply", bead).returncode == 2  # not approved yet
    unsaid = school.run("approve", bead, "--sha", head, "--apply")
    assert unsaid.returncode == 2
    assert "--rehearsal" in unsaid.stderr
    assert git(sample, "rev-parse", "main") == report["base_sha"]
    done = said(school.run("approve", bead, "--sha", head[:12], "--apply", "--rehearsal", "--json"))
    assert (done["state"], done["applied"]["how"]) == ("approved", "fast-forward")
    assert git(sample, "rev-parse", "main") == head
    assert bead not in [entry["bead"] for entry in said(school.run("inbox", "--json"))]


def test_an_approval_is_refused_when_the_record_or_the_branch_was_changed(school, sample):
    first, second = (school.spawn(sample, FIX).report for _ in range(2))
    path = school.home.archive / f"{first['bead']}.json"
    bag = json.loads(path.read_text())
    path.write_text(json.dumps({**bag, "cto_score": 100 if bag["cto_score"] != 100 else 99}))
    refused = school.run("approve", first["bead"], "--sha", first["head_sha"])
    assert refused.returncode == 2
    assert "does not verify" in refused.stderr
    git(sample, "update-ref", f"refs/heads/{second['branch']}", second["base_sha"])
    refused = school.run("approve", second["bead"], "--sha", second["head_sha"])
    assert refused.returncode == 2
    assert f"not at {second['head_sha']}" in refused.stderr


def test_reject_leaves_everything_but_the_question(school, sample):
    report = school.spawn(sample, FIX).report
    assert said(school.run("reject", report["bead"], "--why", "another way", "--json"))["state"] == "declined"
    assert git(sample, "rev-parse", report["branch"]) == report["head_sha"]
    assert school.run("approve", report["bead"], "--sha", report["head_sha"]).returncode == 2
    assert "another way" in school.run("show", report["bead"]).stdout


def test_a_fix_goes_to_a_new_student_and_through_both_judges(school, sample, scenario):
    first = school.spawn(sample, "[rehearse: cto-fail] Change something.").report
    assert first["outcome"] == "rejected"
    scenario(
        "  - name: told\n    match: {roles: [coder], task: 'Mention the moon', prompt: 'An earlier attempt'}\n"
        "    replies:\n      - do: [{write: {path: moon.txt, content: moon}}, {finish: done}]\n"
        "  - name: judge\n    match: {roles: ['teacher-*'], task: 'Mention the moon'}\n"
        "    replies:\n      - review: {verdict: PASS, confidence: 0.9, summary: yes, ac_met: [], findings: "
        "[{section: s, issue_class: c, severity: LOW, citation: 'moon.txt:1', description: d, suggestion: s}]}\n"
    )
    done = school.run("fix", first["bead"], "--note", "Mention the moon.", "--json")
    second = said(done)
    assert second["outcome"] == "accepted"
    assert second["bead"] != first["bead"]
    assert second["verdicts"] == {"cto": "PASS", "coo": "PASS"}
    assert second["files_changed"] == ["moon.txt"]  # the new student was told of the attempt before it
    assert second["base_sha"] == first["base_sha"]
    old, new = ledger_row(school, first["bead"]), ledger_row(school, second["bead"])
    assert old["human"] == "fix_requested"
    assert old["data"]["word"]["next"] == second["bead"]
    assert new["data"]["request"]["context"]["fix"]["of"] == first["bead"]
    assert new["human"] == "awaiting"
    events = said(school.run("scores", "--bead", first["bead"], "--json"))["feedback"]
    assert all(event["retained"] is True for event in events)
    refused = school.run("fix", second["bead"], "--note", "Again.", SCHOOL_FIX_ROUNDS=1)
    assert refused.returncode == 10
    assert "SCHOOL_FIX_ROUNDS" in refused.stderr


def test_a_parked_bead_is_judged_again(school, sample, scenario):
    parked = school.spawn(
        sample, "[rehearse: teacher-nonsense] Change something.", "--sync", SCHOOL_REVIEW_ATTEMPTS=1
    ).report
    assert parked["outcome"] == "not_reviewed"
    early = school.run("review", parked["bead"], "--json", timeout=400, SCHOOL_REVIEW_ATTEMPTS=1)
    assert early.returncode == 9
    scenario(
        "  - name: judge\n    match: {roles: ['teacher-*'], task: 'teacher-nonsense'}\n"
        "    replies:\n      - review: {verdict: PASS, confidence: 0.9, summary: yes, ac_met: [], findings: "
        "[{section: s, issue_class: c, severity: LOW, citation: c, description: d, suggestion: s}]}\n"
    )
    done = said(school.run("review", parked["bead"], "--json"))
    assert (done["outcome"], done["review"]) == ("accepted", "async")
    assert done["head_sha"] == parked["head_sha"]
    assert git(sample, "rev-parse", done["branch"]) == parked["head_sha"]
    assert (school.home.archive / f"{parked['bead']}.json").exists()
    assert school.run("review", parked["bead"]).returncode == 2
    assert said(school.run("approve", parked["bead"], "--sha", parked["head_sha"], "--json"))["state"] == "approved"


@pytest.mark.parametrize("point", ["reopened", "signal", "review", "acceptance", "branch", "outcome", "archive"])
def test_a_review_that_dies_is_gone_on_with(school, sample, scenario, point):
    parked = school.spawn(
        sample, "[rehearse: teacher-nonsense] Change something.", "--sync", SCHOOL_REVIEW_ATTEMPTS=1
    ).report
    scenario(
        "  - name: judge\n    match: {roles: ['teacher-*'], task: 'teacher-nonsense'}\n"
        "    replies:\n      - review: {verdict: PASS, confidence: 0.9, summary: yes, ac_met: [], findings: "
        "[{section: s, issue_class: c, severity: LOW, citation: c, description: d, suggestion: s}]}\n"
    )
    # without a janitor: it would inherit the fault, and its workers die there too
    died = school.run("review", parked["bead"], SCHOOL_FAULT_AT=point, SCHOOL_JANITOR="false")
    assert died.returncode == -9
    said(school.run("tick", "--json"))  # starts the janitor, where the review had not come to its end
    wait_until(lambda: ledger_row(school, parked["bead"])["cleanup"] == "done")
    row = ledger_row(school, parked["bead"])
    assert (row["status"], row["outcome"], row["human"]) == ("ended", "accepted", "awaiting")
    assert said(school.run("approve", parked["bead"], "--sha", parked["head_sha"], "--json"))["state"] == "approved"


# -- run -------------------------------------------------------------------------------------------------------------------


def test_ready_tasks_run_at_once_and_close_with_their_verdict(school, sample):
    role = ("--role", "coder")
    good = submit(school, sample, FIX, "gov-good", *role)
    bad = submit(school, sample, "[rehearse: coo-fail] Change something.", "gov-bad", *role)
    hard = submit(school, sample, "Redesign everything.", "gov-hard", "--label", "blocker")
    done = school.run("run", "--ready", "--max", 3, "--agent", "light", "--verify", VERIFY, "--json", timeout=400)
    jobs = {job["task"]: job for job in json.loads(done.stdout)["jobs"]}
    assert done.returncode == 1, done.stderr
    assert {name: job["outcome"] for name, job in jobs.items()} == {good: "accepted", bad: "rejected", hard: "blocked"}
    closed, rejected, blocked = (task(school, name) for name in (good, bad, hard))
    assert closed["status"] == rejected["status"] == "closed"
    assert closed["reason"].startswith("accepted: both judges passed it; school/gov-good at ")
    assert rejected["reason"].startswith("rejected: ")
    assert "COO says FAIL" in rejected["reason"]
    assert blocked["status"] == "blocked"
    assert "Nobody is eligible" in blocked["reason"]
    assert git(sample, "rev-parse", "school/gov-good") == ledger_row(school, good)["head_sha"]
    again = school.run("run", "--ready", "--json")
    assert said(again) == {"jobs": []}


def test_rounds_are_counted_and_a_cancelled_run_cancels_its_beads(school, sample, engine):
    for number in range(3):
        submit(school, sample, "[rehearse: slow 60] Change it.", f"gov-slow{number}", "--role", "coder")
    process = school.start("run", "--rounds", 1, "--max", 2, "--agent", "light", "--json")
    wait_until(lambda: len(school.traces(engine)["containers"]) == 2)
    assert process.poll() is None
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err + out
    states = [task(school, f"gov-slow{number}")["status"] for number in range(3)]
    assert states == ["blocked", "blocked", "open"]
    assert "cancelled" in task(school, "gov-slow0")["reason"]
    school.run("tasks", "close", "gov-slow2", "--reason", "not needed")


def test_a_task_whose_driver_was_killed_is_settled_by_the_next_round(school, sample, engine):
    submit(school, sample, "[rehearse: slow 3] Change it.", "gov-killed", "--role", "coder")
    process = school.start("run", "--rounds", 1, "--agent", "light")
    wait_until(lambda: bool(school.traces(engine)["containers"]))
    pids = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "principal.detached"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(pids) == 1
    subprocess.run(["kill", "-KILL", pids[0]], check=True)
    process.communicate(timeout=120)
    assert process.returncode == 1
    assert task(school, "gov-killed")["status"] == "claimed"
    wait_until(lambda: ledger_row(school, "gov-killed")["status"] == "ended")  # the janitor went on with it
    assert school.run("tick").returncode == 0
    settled = task(school, "gov-killed")
    assert settled["status"] == "closed"
    assert settled["reason"].startswith("accepted")


# -- tick --------------------------------------------------------------------------------------------------------------------


def test_two_ticks_at_once_do_one_round_and_both_end_well(school, sample):
    submit(school, sample, "Change something.", "gov-tick", "--role", "coder")
    processes = [school.start("tick", "--json", "--wait") for _ in range(3)]
    rounds = []
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        rounds.append(json.loads(out)["tick"])
    assert [done["started"] for done in rounds if done and done["started"]] == [["gov-tick"]]
    wait_until(lambda: task(school, "gov-tick")["status"] == "closed")
    assert ledger_row(school, "gov-tick")["outcome"] == "accepted"


def test_a_fix_for_later_is_the_next_ticks(school, sample):
    first = school.spawn(sample, "Change something.").report
    later = said(school.run("fix", first["bead"], "--note", "More of it.", "--later", "--json"))
    done = said(school.run("tick", "--wait", "--json"))["tick"]
    assert done["fixes"] == [later["next_bead"]]
    assert ledger_row(school, later["next_bead"])["outcome"] == "accepted"
    assert said(school.run("tick", "--json"))["tick"]["fixes"] == []


def test_a_fix_that_can_not_be_started_is_taken_back(school, sample):
    first = school.spawn(sample, "Change something.").report
    later = said(school.run("fix", first["bead"], "--note", "More of it.", "--later", "--json"))
    moved = sample.rename(sample.with_name("moved"))
    try:
        said(school.run("tick", "--wait", "--json"))
        row = ledger_row(school, first["bead"])
        assert row["human"] == "awaiting"
        assert ledger_row(school, later["next_bead"]) is None
    finally:
        moved.rename(sample)


def test_serve_goes_round_until_it_is_told_to_end(school, sample):
    process = school.start("serve", "--interval", 1, "--json")
    submit(school, sample, "Change something.", "gov-serve", "--role", "coder")
    try:
        wait_until(lambda: task(school, "gov-serve")["status"] == "closed", 180)
    finally:
        process.terminate()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    started = [name for line in out.splitlines() for name in (json.loads(line)["tick"] or {}).get("started", [])]
    assert started == ["gov-serve"]
