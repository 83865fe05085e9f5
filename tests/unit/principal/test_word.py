"""R-43 to R-46 without mail: a person's word counts once, names a commit, and nothing moved may be approved."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agents.brief import Brief, task_message
from orchestrator.errors import BlockedError, UsageError
from orchestrator.home import home_at
from orchestrator.principal.apply import apply_bead
from orchestrator.principal.word import Words, fix_request

SPEC = importlib.util.spec_from_file_location("accepted", Path(__file__).with_name("accepted.py"))
accepted_module = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(accepted_module)
git, BEAD, Accepted = accepted_module.git, accepted_module.BEAD, accepted_module.Accepted


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


@pytest.fixture
def make(home, tmp_path):
    made = []

    def go(**more):
        made.append(Accepted(home, tmp_path / f"repo{len(made)}", **more))
        return made[-1]

    yield go
    for one in made:
        one.ledger.close()


@pytest.fixture
def bead(make):
    return make()


@pytest.fixture
def words(home, bead):
    return Words(home, bead.ledger, fix_rounds=2)


# -- approve ---------------------------------------------------------------------------------------------------------


def test_what_was_accepted_waits_and_is_approved_by_its_commit(words, bead):
    assert [row["bead"] for row in words.inbox()] == [BEAD]
    assert words.no_approval(BEAD) == ""
    given = words.approve(BEAD, bead.head[:12], via="test")
    assert (given.state, given.head_sha, given.repeated) == ("approved", bead.head, False)
    assert words.inbox() == []
    assert bead.row()["data"]["word"]["sha"] == bead.head
    assert bead.ledger.events(BEAD)[-1]["kind"] == "word"


def test_the_same_word_twice_is_one_word_and_another_one_is_refused(words, bead):
    words.approve(BEAD, bead.head, via="a")
    assert words.approve(BEAD, bead.head, via="b").repeated
    assert bead.row()["data"]["word"]["via"] == "a"
    with pytest.raises(UsageError, match="approved already"):
        words.decline(BEAD, "no", via="c")
    with pytest.raises(UsageError, match="approved already"):
        words.request_fix(BEAD, "again", via="c")


@pytest.mark.parametrize("sha", ["", "abc", "0" * 40, "HEAD", "g" * 12])
def test_another_commit_is_not_approved(words, bead, sha):
    with pytest.raises(UsageError, match="not the commit that was judged"):
        words.approve(BEAD, sha, via="test")
    assert bead.row()["human"] == "awaiting"


def _edit_bag(bead, **fields):
    bead.bag |= fields
    bead.archive()


def _swap_evidence(bead):
    (bead.home.evidence / BEAD / "evidence.json").write_text("{}")


def _commit_on_branch(bead):
    git(bead.repo, "update-ref", f"refs/heads/school/{BEAD}", bead.base)


MOVES = {
    "a verdict was changed": lambda b: _edit_bag(b, cto_score=100),
    "a finding was added": lambda b: _edit_bag(b, coo_findings=[{"severity": "LOW"}]),
    "the output was changed": lambda b: _edit_bag(b, output="other"),
    "the commit in the bookbag was changed": lambda b: _edit_bag(b, head_sha=b.base),
    "a seal is gone": lambda b: _edit_bag(b, coo_seal=None),
    "accepted was taken away": lambda b: _edit_bag(b, accepted=False),
    "the bookbag is gone": lambda b: (b.home.archive / f"{BEAD}.json").unlink(),
    "the bookbag is no bookbag": lambda b: (b.home.archive / f"{BEAD}.json").write_text("["),
    "the evidence was changed": _swap_evidence,
    "a seal key was changed": lambda b: (b.home.keys / "seal-cto.key").write_text("00" * 32 + "\n"),
    "the branch moved": _commit_on_branch,
    "the branch is gone": lambda b: git(b.repo, "branch", "-D", f"school/{BEAD}"),
    "the ref moved": lambda b: git(b.repo, "update-ref", f"refs/school/{BEAD}", b.base),
    "the repository is gone": lambda b: b.repo.rename(b.repo.with_name("moved")),
    "the check had failed": lambda b: b.ledger.update_bead(
        BEAD, data={"progress": {**b.row()["data"]["progress"], "verification": {"status": "failed"}}}
    ),
    "the ledger names other evidence": lambda b: b.ledger.update_bead(
        BEAD, data={"progress": {**b.row()["data"]["progress"], "evidence_sha256": "0" * 64}}
    ),
    "it was rejected": lambda b: b.ledger.update_bead(BEAD, outcome="rejected"),
    "it runs": lambda b: b.ledger.update_bead(BEAD, status="running"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_nothing_is_approved_that_does_not_hold_any_more(words, bead, move):
    move(bead)
    assert words.no_approval(BEAD)
    with pytest.raises(UsageError, match="can't be approved"):
        words.approve(BEAD, bead.head, via="test")
    assert bead.row()["human"] == "awaiting"


def test_two_words_at_once_leave_one(home, bead):
    """Two processes, one says approve, one reject: exactly one state stands and the other is told."""
    program = (
        "import sys; from orchestrator.home import home_at; from orchestrator.principal.ledger import Ledger\n"
        "from orchestrator.principal.word import Words; from orchestrator.errors import UsageError; from pathlib import Path\n"
        "home = home_at(Path(sys.argv[1]))\n"
        "with Ledger(home.ledger) as ledger:\n"
        "  words = Words(home, ledger, fix_rounds=1)\n"
        "  try: print((words.approve(sys.argv[2], sys.argv[3], via='x') if sys.argv[4] == 'a' else "
        "words.decline(sys.argv[2], 'no', via='y')).state)\n"
        "  except UsageError as error: print('refused')\n"
    )
    arguments = [str(home.root), BEAD, bead.head]
    processes = [
        subprocess.Popen([sys.executable, "-c", program, *arguments, which], stdout=subprocess.PIPE, text=True)
        for which in ("a", "r", "a", "r")
    ]
    said = sorted(process.communicate(timeout=120)[0].strip() for process in processes)
    state = bead.row()["human"]
    assert said == sorted([state] * 2 + ["refused"] * 2)


# -- reject, fix -----------------------------------------------------------------------------------------------------------


def test_a_rejected_bead_keeps_its_reason_and_its_branch(words, bead):
    words.decline(BEAD, "not what I meant", via="test")
    assert bead.row()["human"] == "declined"
    assert bead.row()["data"]["word"]["why"] == "not what I meant"
    assert git(bead.repo, "rev-parse", f"school/{BEAD}") == bead.head
    with pytest.raises(UsageError, match="declined already"):
        words.approve(BEAD, bead.head, via="test")


def test_a_fix_is_a_new_bead_for_a_new_student_with_note_and_findings(words, bead):
    given = words.request_fix(BEAD, "Keep the docstring.", via="test")
    assert given.next_bead not in {None, BEAD}
    assert [row["bead"] for row in words.pending_fixes()] == [BEAD]
    request = fix_request(bead.row())
    assert (request.bead, request.base, request.repo) == (given.next_bead, bead.base, str(bead.repo))
    assert request.task.startswith("Mend mean().")
    assert "Keep the docstring." in request.task
    context = request.context["fix"]
    assert (context["of"], context["round"], context["earlier_commit"]) == (BEAD, 1, bead.head)
    assert context["findings"][0]["description"] == "terse"
    brief = Brief({"bead": "b", "role": "coder", "task": request.task, "context": request.context})
    said = task_message(brief)
    assert f"git show {bead.head}" in said
    assert "LOW | stats.py:1 | terse" in said


def test_a_first_student_is_told_of_nothing_before():
    for context in ({}, None, {"fix": "x"}, {"fix": None}):
        assert task_message(Brief({"bead": "b", "role": "coder", "task": "Do.", "context": context})) == "Do."


def test_rounds_of_fixing_are_counted_and_limited(words, bead, make):
    words.request_fix(BEAD, "one", via="test")
    first = fix_request(bead.row())
    second = make(bead=first.bead, context=first.context)
    words.request_fix(first.bead, "two", via="test")
    following = fix_request(second.row())
    assert following.context["fix"]["round"] == 2
    assert following.context["fix"]["notes"] == ["one", "two"]
    assert following.task.startswith("Mend mean().")
    assert following.task.count("A person looked at attempt") == 2
    assert len(following.context["fix"]["findings"]) == 2
    third = make(bead=following.bead, context=following.context)
    with pytest.raises(BlockedError, match="SCHOOL_FIX_ROUNDS"):
        words.request_fix(third.bead, "three", via="test")
    assert third.row()["human"] == "awaiting"


def test_a_fix_that_could_not_be_opened_is_taken_back(words, bead):
    words.request_fix(BEAD, "again", via="test")
    words.withdraw_fix(BEAD, "the repository is gone")
    assert bead.row()["human"] == "awaiting"
    assert words.pending_fixes() == []


def test_a_rejected_result_can_be_fixed_and_a_lost_one_can_not(words, bead):
    bead.ledger.update_bead(BEAD, outcome="lost", human=None)
    with pytest.raises(UsageError, match="nothing to fix"):
        words.request_fix(BEAD, "again", via="test")
    bead.ledger.update_bead(BEAD, outcome="rejected", human=None)
    assert words.request_fix(BEAD, "again", via="test").next_bead
    with pytest.raises(UsageError, match="no note"):
        words.request_fix(BEAD, "  ", via="test")


def test_an_unknown_bead_is_said(words):
    with pytest.raises(UsageError, match="not in the ledger"):
        words.approve("nobody", "0" * 40, via="test")


# -- apply -------------------------------------------------------------------------------------------------------------------


def snapshot(bead):
    files = {p.name: p.read_bytes() for p in bead.repo.iterdir() if p.is_file()}
    return (
        git(bead.repo, "rev-parse", "HEAD"),
        git(bead.repo, "status", "--porcelain"),
        files,
        git(bead.repo, "stash", "list"),
    )


def refused(bead, says, **more):
    before = snapshot(bead)
    with pytest.raises(UsageError, match=says):
        apply_bead(bead.home, bead.ledger, BEAD, **more)
    assert snapshot(bead) == before


@pytest.fixture
def approved(words, bead, monkeypatch):
    for name, value in accepted_module.WHO.items():
        monkeypatch.setenv(name, value)
    words.approve(BEAD, bead.head, via="test")
    return bead


def test_an_approved_commit_is_merged_exactly_and_once(approved):
    merged = apply_bead(approved.home, approved.ledger, BEAD)
    assert (merged.branch, merged.commit, merged.how) == ("main", approved.head, "fast-forward")
    assert git(approved.repo, "rev-parse", "main") == approved.head
    assert git(approved.repo, "status", "--porcelain") == ""
    assert apply_bead(approved.home, approved.ledger, BEAD).how == "already"
    assert approved.row()["data"]["applied"]["commit"] == approved.head


def test_a_branch_that_went_on_gets_a_merge_commit_by_the_user(approved):
    (approved.repo / "other.py").write_text("x = 1\n")
    git(approved.repo, "add", "-A")
    git(approved.repo, "commit", "-qm", "Other")
    ours = git(approved.repo, "rev-parse", "HEAD")
    merged = apply_bead(approved.home, approved.ledger, BEAD)
    assert merged.how == "merge"
    assert git(approved.repo, "rev-list", "--parents", "-1", "HEAD").split()[1:] == [ours, approved.head]
    assert git(approved.repo, "log", "-1", "--format=%an <%ae>") == "S <s@x>"
    assert BEAD in git(approved.repo, "log", "-1", "--format=%B")


def test_without_approval_nothing_is_merged(bead):
    refused(bead, "is not approved")


def test_a_rehearsed_bead_is_merged_only_when_that_is_said(home, make, monkeypatch):
    bead = make(rehearsal=True)
    Words(home, bead.ledger, fix_rounds=1).approve(BEAD, bead.head, via="test")
    refused(bead, "rehearsal")
    assert apply_bead(home, bead.ledger, BEAD, rehearsal=True).how == "fast-forward"


def test_uncommitted_changes_in_the_way_are_not_touched(approved):
    (approved.repo / "stats.py").write_text("mine = (\n")
    refused(approved, "nothing was touched")
    git(approved.repo, "checkout", "stats.py")
    (approved.repo / "elsewhere.txt").write_text("mine\n")
    assert apply_bead(approved.home, approved.ledger, BEAD).how == "fast-forward"
    assert (approved.repo / "elsewhere.txt").read_text() == "mine\n"


def test_staged_changes_elsewhere_stay_staged_through_a_merge_commit(approved):
    (approved.repo / "other.py").write_text("x = 1\n")
    git(approved.repo, "add", "other.py")
    git(approved.repo, "commit", "-qm", "Other")
    (approved.repo / "README.md").write_text("mine\n")
    git(approved.repo, "add", "README.md")
    assert apply_bead(approved.home, approved.ledger, BEAD).how == "merge"
    assert git(approved.repo, "status", "--porcelain") == "M  README.md"


def test_a_conflict_is_named_and_nothing_is_touched(approved):
    (approved.repo / "stats.py").write_text("other = True\n")
    git(approved.repo, "commit", "-qam", "Other")
    refused(approved, "conflicts with main in: stats.py")


def test_in_the_middle_of_a_merge_or_on_no_branch_nothing_is_done(approved):
    (approved.repo / ".git" / "MERGE_HEAD").write_text(approved.head + "\n")
    with pytest.raises(UsageError, match="in the middle of a merge"):
        apply_bead(approved.home, approved.ledger, BEAD)
    (approved.repo / ".git" / "MERGE_HEAD").unlink()
    git(approved.repo, "checkout", "-q", "--detach")
    refused(approved, "on no branch")


def test_what_moved_since_the_approval_is_not_merged(approved):
    git(approved.repo, "update-ref", f"refs/school/{BEAD}", approved.base)
    refused(approved, "can't be applied")


def test_somebody_elses_hooks_do_not_run(approved):
    hook = approved.repo / ".git" / "hooks" / "post-merge"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    apply_bead(approved.home, approved.ledger, BEAD)
    assert not (approved.repo / "ran").exists()


# -- the command line ----------------------------------------------------------------------------------------------------------


def school(home, *arguments):
    import os

    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", *arguments],
        env={**os.environ, "SCHOOL_HOME": str(home.root), **accepted_module.WHO},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip


def test_the_commands_take_a_person_from_inbox_to_merge(home, bead):
    listed = school(home, "inbox")
    assert BEAD in listed.stdout
    assert bead.head[:12] in listed.stdout
    unnamed = school(home, "approve", BEAD)
    assert unnamed.returncode == 2
    assert f"--sha {bead.head[:12]}" in unnamed.stderr
    done = school(home, "approve", BEAD, "--sha", bead.head[:12], "--apply", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["state"], said["head_sha"], said["applied"]["how"]) == ("approved", bead.head, "fast-forward")
    assert git(bead.repo, "rev-parse", "main") == bead.head
    assert "nothing waits" in school(home, "inbox").stdout
    assert "approved" in school(home, "show", BEAD).stdout


def test_reject_and_a_fix_for_later_are_said(home, bead):
    later = school(home, "fix", BEAD, "--note", "Again.", "--later", "--json")
    assert later.returncode == 0, later.stderr
    assert json.loads(later.stdout)["next_bead"]
    assert json.loads(school(home, "inbox", "--json").stdout) == []
    again = school(home, "reject", BEAD, "--why", "no")
    assert again.returncode == 2
    assert "fix_requested already" in again.stderr
