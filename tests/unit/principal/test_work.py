"""What the ledger keeps of a bead is enough to go on with it in another process (R-49)."""

import json

import pytest

from orchestrator.engine.base import Exited, Lost
from orchestrator.git.repository import open_repository
from orchestrator.leaf.ending import Ending
from orchestrator.leaf.run import RunRecord
from orchestrator.leaf.verify import Verification
from orchestrator.personas import load_soul
from orchestrator.principal.adoption import record_from_json, record_to_json
from orchestrator.principal.prepare import Prepared
from orchestrator.principal.request import Budget, SpawnRequest
from orchestrator.principal.sample import make_sample
from orchestrator.principal.work import Stage, Work, new_report, prepared_from_json, prepared_to_json
from orchestrator.sandbox.outcome import Outcome
from orchestrator.sandbox.spec import Limits

BEAD = "coder-general-00000001"


@pytest.fixture
def prepared(tmp_path):
    root = make_sample(tmp_path / "sample")
    repo = open_repository(root)
    return Prepared(
        request=SpawnRequest(repo=str(root), task="mend it", context={"why": "because"}),
        bead=BEAD,
        leaf_name="study-coder-00000001",
        repo=repo,
        base_sha=repo.head_sha,
        branch=f"school/{BEAD}",
        agent="light",
        model="rehearsal",
        rehearsal=True,
        image="school/student:1",
        verify="true",
        budget=Budget(wall=60, calls=10, tokens=1000, cost=1.5),
        limits=Limits(wall=60, memory=1 << 28, cpus=2.0, pids=64, disk=1 << 30, tmp=1 << 26),
        soul=load_soul("student-coder"),
        instructions="",
    )


def row_of(prepared, work, **columns):
    """A row as the ledger gives it back."""
    data = {**prepared_to_json(prepared), "progress": work.to_json()}
    row = {"bead": BEAD, "status": "running", "outcome": None, "head_sha": None, "created": 1000.5, **columns}
    return {**row, "data": json.loads(json.dumps(data, default=str))}


def test_a_prepared_request_comes_back_as_it_was(prepared):
    kept = json.loads(json.dumps(prepared_to_json(prepared)))
    again = prepared_from_json({**kept, "bead": BEAD})
    for name in ("request", "bead", "leaf_name", "base_sha", "branch", "budget", "limits", "verify", "soul", "image"):
        assert getattr(again, name) == getattr(prepared, name), name
    assert again.repo.root == prepared.repo.root


def test_progress_comes_back_as_it_was(prepared):
    work = Work(prepared, None, new_report(prepared), 1000.5, stage=Stage.RAN)
    work.report.output = "done, with \udcff in it"
    work.ending = Ending(Outcome.TIMED_OUT, "the time limit was reached", 4)
    work.submission = {"summary": "s"}
    work.verification = Verification("failed", "make test", 2, "log", "passed", "why")
    work.evidence_sha256 = "e" * 64
    again = Work(prepared, None, new_report(prepared), 0.0)
    again.restore(row_of(prepared, work))
    assert again.resumed
    assert again.stage is Stage.RAN
    assert again.created == 1000.5
    for name in ("ending", "submission", "verification", "evidence_sha256", "report"):
        assert getattr(again, name) == getattr(work, name), name
    assert again.output == work.report.output


def test_a_bead_that_had_its_outcome_keeps_it(prepared):
    work = Work(prepared, None, new_report(prepared), 1.0, stage=Stage.HANDED_OVER)
    again = Work(prepared, None, new_report(prepared), 0.0)
    again.restore(row_of(prepared, work, outcome="accepted", status="ended", head_sha="f" * 40))
    assert (again.report.outcome, again.report.head_sha, again.reported) == ("accepted", "f" * 40, True)


@pytest.mark.parametrize("result", [Exited(137, oom=True), Exited(0), Lost("nowhere")])
def test_what_was_seen_of_a_run_comes_back_as_it_was(result):
    record = RunRecord(result, disk_exceeded="too much", deadline_passed=True, finished={"reason": "r"}, turns=3)
    again = record_from_json(json.loads(json.dumps(record_to_json(record))))
    assert (again.result, again.disk_exceeded, again.deadline_passed) == (result, "too much", True)
    assert again.finished == {"reason": "r"}


def test_stages_are_in_the_order_of_the_way():
    assert list(Stage) == sorted(Stage)
    assert [stage.name for stage in Stage] == ["OPENED", "BOOTED", "RAN", "FROZEN", "VERIFIED", "HANDED_OVER"]
