"""Each way a bead can end, through the command line, on the real engine, OmniRoute, gate and teachers."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]

NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}
FIX = "mean() of an empty list crashes. Make it return 0.0 and keep the other results."
VERIFY = "python3 -m unittest -q"


def _git(repo, *arguments):
    return subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(school, engine, sample):
    yield
    assert school.traces(engine) == NOTHING
    assert len(_git(sample, "worktree", "list").splitlines()) == 1


def test_a_good_change_becomes_a_branch_of_exactly_the_reviewed_commit(school, sample):
    done = school.spawn(sample, FIX, "--verify", VERIFY)
    assert done.code == 0, done.stderr
    report = done.report
    assert report["outcome"] == "accepted"
    assert report["verdicts"] == {"cto": "PASS", "coo": "PASS"}
    assert report["review"] == "async"
    assert report["verification"]["status"] == "passed"
    assert report["files_changed"] == ["stats.py"]
    assert _git(sample, "rev-parse", report["branch"]).strip() == report["head_sha"]
    assert _git(sample, "rev-parse", f"refs/school/{report['bead']}").strip() == report["head_sha"]
    assert _git(sample, "rev-parse", f"{report['head_sha']}^").strip() == report["base_sha"]
    assert report["usage"]["student"]["calls"] == 4
    assert report["usage"]["cto"]["calls"] >= 1
    assert report["usage"]["coo"]["calls"] >= 1
    assert report["cleanup"] == "done"
    assert report["rehearsal"] is True
    assert report["state"] == "DISPOSED"
    archived = list(school.home.archive.rglob(f"{report['bead']}*.json"))
    assert len(archived) == 1
    assert json.loads(archived[0].read_text())["head_sha"] == report["head_sha"]


def test_a_teacher_that_says_fail_rejects(school, sample):
    done = school.spawn(sample, "[rehearse: cto-fail] Change something.")
    assert (done.code, done.report["outcome"]) == (1, "rejected")
    assert done.report["verdicts"] == {"cto": "FAIL", "coo": "PASS"}
    assert done.report["branch"] is None
    assert _git(sample, "rev-parse", f"refs/school/{done.report['bead']}").strip() == done.report["head_sha"]
    assert any(finding["teacher"] == "cto" for finding in done.report["findings"])


def test_a_failing_check_rejects_and_is_compared_with_base(school, sample):
    done = school.spawn(sample, "Change something.", "--verify", "false")
    assert (done.code, done.report["outcome"]) == (1, "rejected")
    assert done.report["verification"]["status"] == "failed"
    assert done.report["verification"]["baseline"] == "failed"
    assert done.report["verification"]["exit_code"] == 1


def test_a_check_that_can_not_run_is_not_accepted(school, sample):
    done = school.spawn(sample, "Change something.", "--verify", "no-such-program-anywhere")
    assert done.report["outcome"] == "rejected"
    assert done.report["verification"]["status"] == "could_not_run"


@pytest.mark.parametrize("marker", ["idle", "nonsense", "empty", "malformed"])
def test_a_student_without_a_change_has_failed(school, sample, marker):
    done = school.spawn(sample, f"[rehearse: {marker}] Change something.")
    assert done.report["outcome"] in {"task_failed", "gateway_denied"}
    assert done.report["accepted"] is False
    if marker == "idle":
        assert (done.code, done.report["outcome"]) == (3, "task_failed")


def test_the_time_limit(school, sample):
    done = school.spawn(sample, "[rehearse: slow 60] Change something.", "--timeout", 2)
    assert (done.code, done.report["outcome"]) == (4, "timed_out")


def test_the_memory_limit(school, sample):
    command = "python3 -c 'x = bytearray(1 << 30)'"
    done = school.spawn(sample, "x", "--agent", "command", "--command", command, "--memory", "96m")
    assert (done.code, done.report["outcome"]) == (5, "out_of_memory")


def test_the_budget_of_calls(school, sample):
    done = school.spawn(sample, "Change something.", "--max-calls", 2)
    assert (done.code, done.report["outcome"]) == (6, "budget_exhausted")
    assert done.report["usage"]["student"]["calls"] == 2


def test_a_gateway_that_denies(school, sample):
    done = school.spawn(sample, "[rehearse: http-401] Change something.")
    assert (done.code, done.report["outcome"]) == (6, "gateway_denied")


def test_teachers_that_can_not_be_understood_leave_it_unreviewed(school, sample):
    done = school.spawn(sample, "[rehearse: teacher-nonsense] Change something.", "--sync", SCHOOL_REVIEW_ATTEMPTS=1)
    assert (done.code, done.report["outcome"]) == (9, "not_reviewed")
    assert done.report["verdicts"] == {"cto": "", "coo": ""}
    assert done.report["accepted"] is False
    assert done.report["head_sha"]


def test_text_alone_is_a_product_of_a_searcher(school, sample):
    done = school.spawn(sample, "Where is mean defined?", "--role", "searcher")
    assert (done.code, done.report["outcome"]) == (0, "accepted")
    assert done.report["branch"] is None
    assert done.report["head_sha"] == done.report["base_sha"]
    assert done.report["output"]


def test_the_synchronous_review_gives_the_same_kind_of_answer(school, sample):
    done = school.spawn(sample, FIX, "--sync", "--verify", VERIFY)
    assert done.code == 0, done.stderr
    assert done.report["review"] == "sync"


def test_ctrl_c_cancels_and_removes(school, sample, engine):
    process = school.start("spawn", "--json", "--repo", sample, "--agent", "light", "[rehearse: slow 60] Do it.")
    deadline = time.monotonic() + 60
    while not school.traces(engine)["containers"]:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert (process.returncode, report["outcome"], report["cleanup"]) == (130, "cancelled", "done"), err


def test_an_engine_that_is_gone_is_said_before_anything_is_made(school, sample):
    done = school.spawn(sample, "x", DOCKER_HOST="unix:///nonexistent.sock")
    assert done.code == 7
    assert "DOCKER_HOST" in done.stderr + done.stdout
    assert json.loads(done.stdout)["error"]


def test_the_user_sees_progress_and_one_json_object_only(school, sample):
    done = school.spawn(sample, FIX, "--verify", VERIFY)
    assert len(done.stdout.splitlines()) == 1
    assert "ACCEPTED" in done.stderr
    for step in ("worktree", "student", "verification", "judges", "student removed"):
        assert step in done.stderr


def test_a_detached_bead_is_followed_to_its_outcome(school, sample):
    started = school.run("spawn", "--detach", "--repo", sample, "--agent", "light", "[rehearse: cto-fail] Change it.")
    bead = started.stdout.strip()
    assert started.returncode == 0, started.stderr
    followed = school.run("logs", "-f", bead)
    assert followed.returncode == 1
    assert "REJECTED" in followed.stdout
    shown = school.run("show", bead, "--json")
    assert json.loads(shown.stdout)["outcome"] == "rejected"
    assert "REHEARSAL.md" in school.run("diff", bead).stdout


def test_eight_at_once_on_one_repository(school, sample):
    processes = [
        school.start("spawn", "--json", "--repo", sample, "--agent", "light", f"Change number {n}.") for n in range(8)
    ]
    reports = []
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        reports.append(json.loads(out))
    assert len({report["bead"] for report in reports}) == 8
    assert len({report["branch"] for report in reports}) == 8
    for report in reports:
        assert _git(sample, "rev-parse", report["branch"]).strip() == report["head_sha"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--repo", "/nonexistent", "x"], "does not exist"),
        (["--repo", "/", "x"], "not inside a git repository"),
        (["--role", "wizard", "--repo", ".", "x"], "--role"),
        (["--model", "no/such", "--repo", ".", "x"], "no model alias"),
        (["--base", "no-such-ref", "--repo", ".", "x"], "names no commit"),
        (["--timeout", "0", "--repo", ".", "x"], "--timeout"),
        (["--memory", "lots", "--repo", ".", "x"], "--memory is not a size"),
        (["--agent", "command", "--repo", ".", "x"], "--command"),
        (["--repo", "."], "no task"),
        (["--bead", "../x", "--repo", ".", "x"], "bead"),
    ],
)
def test_what_can_not_be_done_as_typed_is_refused_with_a_reason(school, sample, arguments, says):
    here = [str(sample) if a == "." else a for a in arguments]
    done = school.run("spawn", *here)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dirty_working_tree_stays_as_it_is(school, sample):
    (sample / "stats.py").write_text("broken = (\n")
    (sample / "new.txt").write_text("mine\n")
    before = _git(sample, "status", "--porcelain")
    done = school.spawn(sample, FIX, "--verify", VERIFY)
    assert done.code == 0, done.stderr
    assert "uncommitted changes" in done.stderr
    assert _git(sample, "status", "--porcelain") == before
    assert (sample / "stats.py").read_text() == "broken = (\n"


def test_the_records_hold_no_key(school, sample):
    school.spawn(sample, FIX)
    secrets = [path.read_text().strip() for path in school.home.keys.rglob("*") if path.is_file()]
    assert len(secrets) >= 6
    for folder in (school.home.archive, school.home.evidence, school.home.logs, school.home.bookbags):
        for path in Path(folder).rglob("*"):
            if path.is_file():
                text = path.read_text(errors="replace")
                assert not any(secret in text for secret in secrets), path
    assert os.stat(school.home.keys).st_mode & 0o777 == 0o700
