"""One story, told by six records: ten tasks, a sandbox that fails one, a judge that fails one, a person with four words.

Tracker, ledger, scores, bookbags, mail and git history have to tell the same.
"""

import importlib.util
import itertools
import json
import subprocess
import threading
import time
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_BEAD, LABEL_HOME, LABEL_KIND
from orchestrator.principal.ledger import Ledger

pytestmark = [pytest.mark.engine, pytest.mark.standing]

SERVER = Path(__file__).parents[2] / "unit" / "rails" / "agentmail_server.py"
SPEC = importlib.util.spec_from_file_location("agentmail_server_of_the_story", SERVER)
MAIL = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MAIL)

BOSS = "boss@example.org"
NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}
BROKEN = "story-07"
TASKS = {
    "story-01": ("mean() of an empty list crashes. Make it return 0.0 and keep the other results.", "--difficulty", "easy"),
    "story-02": ("[rehearse: write second.txt] Write a note.", "--difficulty", "easy"),
    "story-03": ("[rehearse: write third.txt] Write the third note.", "--difficulty", "medium"),
    "story-04": ("[rehearse: write fourth.txt] Change the worker pool; there is a deadlock.",),  # hard, by the rules
    "story-05": ("Where is mean defined?",),  # a searcher's, by the rules
    "story-06": ("[rehearse: cto-fail] Change something.", "--role", "coder"),
    BROKEN: ("[rehearse: slow 4] [rehearse: write seventh.txt] Write slowly.", "--role", "coder"),
    "story-08": ("[rehearse: idle] Change something.", "--role", "coder", "--difficulty", "medium"),
    "story-09": ("Run the generator. [rehearse: run echo ninth > ninth.txt]",),  # an executor's, by the rules
    "story-10": ("Redesign everything.", "--label", "blocker"),  # nobody is eligible
}  # fmt: skip


def git(repo, *arguments):
    done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def mail():
    server = MAIL.AgentMailServer()
    server.page = 20
    yield server
    server.close()


@pytest.fixture
def run(school, mail):
    """Return a function that runs a command with mail on, and gives its JSON."""
    env = {
        "SCHOOL_MAIL": "agentmail",
        "SCHOOL_AGENTMAIL_INBOX": MAIL.INBOX,
        "SCHOOL_AGENTMAIL_URL": mail.url,
        "SCHOOL_MAIL_TO": BOSS,
        "SCHOOL_MAIL_ALLOW": BOSS,
        "AGENTMAIL_API_KEY": MAIL.KEY,
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Boss"), ("EMAIL", BOSS))},
    }  # fmt: skip

    def go(*arguments, code=0):
        done = school.run(*arguments, "--json", timeout=500, **env)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return go


def wait_until(true, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def break_repository_for(engine, home, repo, bead):
    """Put a ref in the way of a bead's own while its student runs: its work can't be kept then."""
    labels = {LABEL_HOME: home.id, LABEL_BEAD: bead, LABEL_KIND: "leaf"}
    wait_until(lambda: any(container.state == "running" for container in engine.list(labels)))
    git(repo, "update-ref", f"refs/school/{bead}/in-the-way", "HEAD")


def notice_for(mail, bead):
    found = [m for m in mail.messages if m["labels"] == ["sent"] and m.get("subject") and f"({bead})" in m["subject"]]
    assert len(found) == 1, bead
    return found[0]


def test_ten_tasks_are_told_the_same_by_every_record(school, engine, sample, mail, run):
    # -- ten tasks, run at once; the repository breaks under one of them ---------------------------------------------------
    for name, (text, *more) in TASKS.items():
        run("submit", "--repo", sample, "--id", name, *more, text)
    vandal = threading.Thread(target=break_repository_for, args=(engine, school.home, sample, BROKEN))
    vandal.start()
    first = run("run", "--ready", "--max", 4, "--agent", "light", code=1)
    vandal.join()
    outcomes = {job["task"]: job["outcome"] for job in first["jobs"]}
    assert outcomes == {
        "story-01": "accepted",
        "story-02": "accepted",
        "story-03": "accepted",
        "story-04": "accepted",
        "story-05": "accepted",
        "story-06": "rejected",
        BROKEN: "sandbox_unavailable",
        "story-08": "task_failed",
        "story-09": "accepted",
        "story-10": "blocked",
    }

    # -- the next round does again what the sandbox had failed, and tells the boss by mail -----------------------------
    git(sample, "update-ref", "-d", f"refs/school/{BROKEN}/in-the-way")
    second = run("tick", "--wait")["tick"]
    assert second["problems"] == []
    assert second["started"] == [f"{BROKEN}-r2"]
    assert {"story-01", "story-02", "story-03", "story-06"} <= set(second["notices"])

    # -- the boss: one approval with merge, one rejection, one fix by mail; a forged approval counts for nothing --------
    head = ledger_of(school, "story-01")["head_sha"]
    run("approve", "story-01", "--sha", head[:12], "--apply", "--rehearsal")
    run("reject", "story-02", "--why", "not needed")
    notice = notice_for(mail, "story-03")
    token = next(line.split()[1] for line in notice["text"].splitlines() if line.strip().startswith("/fix"))
    approve = next(line.strip() for line in notice["text"].splitlines() if line.strip().startswith("/approve"))
    mail.receive("Mallory <mallory@example.org>", approve, notice["thread_id"])
    mail.receive(f"Boss <{BOSS}>", f"/fix {token} Say it louder.\n\n> earlier words\n", notice["thread_id"])
    third = run("tick", "--wait")["tick"]
    assert third["problems"] == []
    assert [(a["command"], a["bead"]) for a in third["answers"]] == [(None, "story-03"), ("fix", "story-03")]
    (fixed,) = third["fixes"]
    fourth = run("tick", "--wait")["tick"]
    assert fixed in fourth["notices"]
    assert fourth["started"] == fourth["fixes"] == fourth["answers"] == []

    # what the janitor could not remove while the repository was broken is gone by now, and the work was kept after all
    wait_until(lambda: ledger_of(school, BROKEN)["cleanup"] == "done")

    # -- the tracker -----------------------------------------------------------------------------------------------------
    tasks = {task["id"]: task for task in run("tasks", "--all") if task["id"] in TASKS}
    assert {name: task["status"] for name, task in tasks.items()} == {
        **dict.fromkeys(TASKS, "closed"),
        "story-10": "blocked",
    }
    expected = {**outcomes, BROKEN: "accepted"}
    assert {name: task["reason"].partition(":")[0] for name, task in tasks.items()} == expected

    # -- the ledger --------------------------------------------------------------------------------------------------------
    rows = {name: ledger_of(school, name) for name in [*TASKS, f"{BROKEN}-r2", fixed] if name != "story-10"}
    assert ledger_of(school, "story-10") is None
    assert {name: row["outcome"] for name, row in rows.items()} == {
        **{name: outcome for name, outcome in outcomes.items() if name != "story-10"},
        f"{BROKEN}-r2": "accepted",
        fixed: "accepted",
    }
    assert {row["cleanup"] for row in rows.values()} == {"done"}
    assert {name: row["human"] for name, row in rows.items()} == {
        "story-01": "approved",
        "story-02": "declined",
        "story-03": "fix_requested",
        "story-04": "awaiting",
        "story-05": "awaiting",
        "story-06": None,
        BROKEN: None,
        "story-08": None,
        "story-09": "awaiting",
        f"{BROKEN}-r2": "awaiting",
        fixed: "awaiting",
    }
    assert rows["story-03"]["data"]["word"]["next"] == fixed
    assert rows[fixed]["data"]["request"]["context"]["fix"]["of"] == "story-03"
    assert "Say it louder." in rows[fixed]["data"]["request"]["task"]
    assert rows["story-05"]["data"]["request"]["role"] == "searcher"
    assert rows["story-09"]["data"]["request"]["role"] == "executor"
    assert rows["story-04"]["data"]["request"]["difficulty"] == "hard"
    assert {entry["bead"] for entry in run("inbox")} >= {"story-04", "story-05", "story-09", fixed}

    # -- the scores: a chain without gaps, one link a bead, none for the sandbox's fault -----------------------------------------
    changes = {}
    for profile in ("rehearsal:student-coder", "rehearsal:student-searcher", "rehearsal:student-executor"):
        found = run("scores", profile, "--limit", 1000)["changes"][::-1]
        assert all(later["old"] == earlier["new"] for earlier, later in itertools.pairwise(found))
        changes |= {change["bead"]: change for change in found}
    assert {name for name in rows if name in changes} == set(rows) - {BROKEN}
    for name, row in rows.items():
        if name != BROKEN:
            assert changes[name]["cause"].startswith(f"{row['outcome']}: task score ")
    assert changes["story-08"]["new"] == pytest.approx(0.7 * changes["story-08"]["old"])
    events = run("scores", "--bead", "story-03")["feedback"]
    assert {event["told_by"] for event in events} == {fixed}

    # -- the bookbags ------------------------------------------------------------------------------------------------------------
    for name, row in rows.items():
        path = school.home.archive / f"{name}.json"
        assert path.exists() is (row["outcome"] in {"accepted", "rejected"}), name
        if path.exists():
            bag = json.loads(path.read_text())
            assert (bag["head_sha"], bag["base_sha"], bag["state"]) == (row["head_sha"], row["base_sha"], "DISPOSED")
            assert bag["accepted"] is (row["outcome"] == "accepted")
            assert (bag["cto_verdict"] == bag["coo_verdict"] == "PASS") is bag["accepted"]

    # -- the mail ------------------------------------------------------------------------------------------------------------------
    for name, row in rows.items():
        sent = [m for m in mail.messages if m.get("subject") and f"({name})" in m["subject"]]
        assert len(sent) == (row["outcome"] in {"accepted", "rejected"}), name
    thread = [m for m in mail.messages if m["thread_id"] == notice["thread_id"]]
    assert [m["labels"][0] for m in thread] == ["sent", "received", "received", "sent"]
    assert fixed in thread[-1]["text"]
    assert f"refs/school/{fixed}" not in thread[-1]["text"]
    assert rows[fixed]["head_sha"] in notice_for(mail, fixed)["text"]

    # -- the history ---------------------------------------------------------------------------------------------------------------
    assert git(sample, "rev-parse", "main") == head
    assert git(sample, "rev-list", "--count", "main") == "2"
    branches = set(git(sample, "for-each-ref", "--format=%(refname)", "refs/heads/school").splitlines())
    changed = {name for name, row in rows.items() if row["head_sha"] not in {None, row["base_sha"]}}
    accepted = {name for name in changed if rows[name]["outcome"] == "accepted"}
    assert branches == {f"refs/heads/school/{name}" for name in accepted}
    kept = dict(
        line.split()
        for line in git(sample, "for-each-ref", "--format=%(refname) %(objectname)", "refs/school").splitlines()
    )
    assert kept == {f"refs/school/{name}": rows[name]["head_sha"] for name in changed}
    for name in changed:
        assert git(sample, "log", "-1", "--format=%P", rows[name]["head_sha"]) == rows[name]["base_sha"]
        assert f"Bead: {name}" in git(sample, "log", "-1", "--format=%B", rows[name]["head_sha"])
    assert len(git(sample, "worktree", "list").splitlines()) == 1
    assert git(sample, "status", "--porcelain") == ""
    assert school.traces(engine) == NOTHING


def ledger_of(school, bead):
    with Ledger(school.home.ledger) as ledger:
        return ledger.bead(bead)
