"""What is known of a bead while it is driven, how far it has come, and how the ledger keeps both.

A stage is noted when everything that the later stretches need is in the ledger: whoever adopts the bead enters the way
there. A stretch that was cut off is done again; each is written so that doing it again changes nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.git.freeze import FrozenTree, file_changes
from orchestrator.git.repository import open_repository
from orchestrator.leaf.brief import Brief
from orchestrator.leaf.ending import Ending
from orchestrator.leaf.student import LeafPlan
from orchestrator.leaf.verify import Verification
from orchestrator.personas import load_soul
from orchestrator.principal.adoption import record_from_json
from orchestrator.principal.prepare import Prepared, instructions_at
from orchestrator.principal.report import Report
from orchestrator.principal.request import Budget, SpawnRequest
from orchestrator.sandbox.outcome import Outcome
from orchestrator.sandbox.spec import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.leaf.run import RunRecord
    from orchestrator.leaf.student import StudentLeaf
    from orchestrator.principal.journal import BeadJournal
    from orchestrator.principal.school import School


class Stage(IntEnum):
    """How far a bead has come."""

    OPENED = 0  # the row is there
    BOOTED = 1  # container and brief are there: the student may run from here on
    RAN = 2  # how it ended is known, and what it said
    FROZEN = 3  # its work is at refs/school/<bead>
    VERIFIED = 4
    HANDED_OVER = 5  # evidence and bookbag are written: from here on the bookbag tells


@dataclass(slots=True)
class Work:
    """What is known of a bead while it is driven."""

    prepared: Prepared
    journal: BeadJournal
    report: Report
    created: float  # epoch seconds: when the bead was opened, and the time of its commit
    stage: Stage = Stage.OPENED
    resumed: bool = False
    reported: bool = False  # it had ended before: its log has its end already
    leaf: StudentLeaf | None = None
    grant_open: bool = False
    record: RunRecord | None = None
    seen: RunRecord | None = None  # by the principal that died
    ending: Ending | None = None
    frozen: FrozenTree | None = None
    output: str = ""
    submission: dict[str, Any] = field(default_factory=dict)
    verification: Verification = field(default_factory=Verification)
    evidence_sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what the later stretches need, for the ledger."""
        return {
            "stage": self.stage.name,
            "report": self.report.to_json(),
            "ending": dataclasses.asdict(self.ending) if self.ending else None,
            "messages": list(self.frozen.student_messages) if self.frozen else [],
            "submission": self.submission,
            "verification": dataclasses.asdict(self.verification),
            "evidence_sha256": self.evidence_sha256,
        }

    def restore(self, row: Mapping[str, Any]) -> None:
        """Take over what a principal noted.

        Raises:
            GitError: the repository does not have the kept commit any more.
        """
        self.resumed, self.grant_open = True, True
        self.reported = row["status"] == "ended"
        self.created = float(row["created"])
        progress = row["data"].get("progress") or {}
        if found := row["data"].get("report") or progress.get("report"):
            self.report = Report(**found)
        self.report.head_sha = row["head_sha"] or self.report.head_sha
        if row["outcome"]:
            self.report.outcome, self.report.reason = row["outcome"], str(row["data"].get("reason", ""))
        if seen := row["data"].get("seen"):
            self.seen = record_from_json(seen)
        if not progress:
            return
        self.stage = Stage[progress["stage"]]
        self.output = self.report.output
        self.submission = progress["submission"]
        self.verification = Verification(**progress["verification"])
        self.evidence_sha256 = progress["evidence_sha256"]
        if ending := progress["ending"]:
            outcome = Outcome(ending["outcome"]) if ending["outcome"] else None
            self.ending = Ending(outcome, ending["reason"], ending["exit_code"])
        if self.stage >= Stage.FROZEN and not self.report.outcome:
            base, head = self.prepared.base_sha, self.report.head_sha
            changed = head is not None and head != base
            files = file_changes(self.prepared.repo.common_dir, base, str(head)) if changed else ()
            messages = tuple(progress["messages"])
            self.frozen = FrozenTree(base, head if changed else None, None, files, (), messages, 0)


def new_report(prepared: Prepared) -> Report:
    """Return the report of a bead that begins."""
    return Report(
        bead=prepared.bead,
        task=prepared.request.task,
        role=prepared.request.role,
        agent=prepared.agent,
        model=prepared.model,
        rehearsal=prepared.rehearsal,
        repo=str(prepared.repo.root),
        base_sha=prepared.base_sha,
    )


# What the home or the commit can tell again is not kept in the row.
_AGAIN = frozenset({"repo", "soul", "instructions", "notes"})


def prepared_to_json(prepared: Prepared) -> dict[str, Any]:
    """Return a prepared request for the ledger, so that another principal can go on with it."""
    kept = {f.name: getattr(prepared, f.name) for f in dataclasses.fields(prepared) if f.name not in _AGAIN}
    kept |= {name: dataclasses.asdict(kept[name]) for name in ("request", "budget", "limits")}
    return {**kept, "repo": str(prepared.repo.root), "common_dir": str(prepared.repo.common_dir)}


def prepared_from_json(data: Mapping[str, Any]) -> Prepared:
    """Return what ``prepared_to_json`` wrote.

    Raises:
        RepositoryUnusableError: the repository is not there any more.
        KeyError: the row was written by a version that did not keep this.
    """
    repo = open_repository(Path(data["repo"]))
    request = SpawnRequest.from_json(data["request"])
    names = {f.name for f in dataclasses.fields(Prepared)} & set(data)
    again: dict[str, Any] = {
        "repo": repo,
        "request": request,
        "budget": Budget(**data["budget"]),
        "limits": Limits(**data["limits"]),
        "soul": load_soul(f"student-{request.role}"),
        "instructions": instructions_at(repo, data["base_sha"]),
    }
    return Prepared(**({name: data[name] for name in names} | again))


def brief_of(prepared: Prepared) -> Brief:
    """Return the student's task contract."""
    request = prepared.request
    return Brief(
        bead=prepared.bead,
        role=request.role,
        domain=request.domain,
        task=request.task,
        difficulty=request.difficulty,
        agent=prepared.agent,
        model=prepared.model,
        command=request.command,
        verification=prepared.verify or "",
        limits={"wall_s": prepared.budget.wall, "turns": prepared.budget.calls + 1},
        context=request.context,
    )


def plan_of(prepared: Prepared, school: School) -> LeafPlan:
    """Return everything that is decided of a leaf before it exists."""
    return LeafPlan(
        bead=prepared.bead,
        name=prepared.leaf_name,
        base_sha=prepared.base_sha,
        image=prepared.image,
        limits=prepared.limits,
        brief=brief_of(prepared),
        soul=prepared.soul,
        instructions=prepared.instructions,
        gate=school.grant_folder(prepared.bead),
        objects_mode=prepared.objects_mode,
        userns_mode=school.userns_mode,
        keep=prepared.request.keep,
    )
