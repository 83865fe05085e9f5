"""The repository's own check on the result, in a second, clean container (DESIGN, step 8; R-39).

Same image and path as the student's, a fresh checkout of head_sha, no gate: what the student left running, edited
outside the commit or says of its tests has no part in it. A failure is compared with the same check on base_sha, so
that a repository that failed before is named as such.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import Kind
from orchestrator.errors import GitError, SandboxError
from orchestrator.leaf.brief import Brief
from orchestrator.leaf.student import LeafPlan, StudentLeaf

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from orchestrator.engine.base import Engine
    from orchestrator.git.repository import Repository
    from orchestrator.home import Home
    from orchestrator.leaf.journal import Journal
    from orchestrator.leaf.run import RunRecord

PASSED, FAILED, COULD_NOT_RUN, NOT_CONFIGURED = "passed", "failed", "could_not_run", "not_configured"
NOT_EXECUTABLE = frozenset({126, 127})
"""What a shell answers when the command can't be run or is not there."""


@dataclass(frozen=True, slots=True)
class Verification:
    """How the check ended. ``baseline`` is the status of the same check on base_sha, when that was asked."""

    status: str = NOT_CONFIGURED
    command: str | None = None
    exit_code: int | None = None
    log: str = ""
    baseline: str | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it for the report."""
        return {
            "status": self.status,
            "command": self.command,
            "exit_code": self.exit_code,
            "log": self.log,
            "baseline": self.baseline,
        }

    def sentence(self) -> str:
        """Return it in one line, for the bookbag."""
        text = self.status.replace("_", " ")
        if self.command:
            text += f": `{self.command}`"
        if self.exit_code not in {None, 0}:
            text += f" ended with {self.exit_code}"
        if self.reason:
            text += f" ({self.reason})"
        if self.baseline:
            text += f"; on base_sha: {self.baseline.replace('_', ' ')}"
        return text


@dataclass(frozen=True, slots=True)
class Verifier:
    """Runs one repository's check on commits of it."""

    home: Home
    engine: Engine
    repo: Repository
    student: LeafPlan  # image, limits and names come from the student's own plan
    command: str
    timeout: int
    journal: Journal
    starting: Callable[[], AbstractContextManager[object]]

    def run(self, sha: str, *, label: str) -> Verification:
        """Run the check on a clean checkout of ``sha``; never raises for what the repository does."""
        plan = replace(
            self.student,
            name=f"{self.student.name}-{label}",
            base_sha=sha,
            gate=None,
            keep=False,
            kind=Kind.VERIFY,
            limits=replace(self.student.limits, wall=self.timeout),
            brief=Brief(
                bead=self.student.bead,
                role="executor",
                domain="verification",
                task=f"Run the repository's own check: {self.command}",
                difficulty="easy",
                agent="command",
                model="",
                command=self.command,
                limits={"wall_s": self.timeout},
            ),
        )
        leaf = StudentLeaf(self.home, self.engine, self.repo, plan, self.journal, starting=self.starting)
        try:
            with leaf:
                leaf.boot()
                leaf.write_brief()
                record = leaf.run_task()
        except (SandboxError, GitError) as error:
            return Verification(COULD_NOT_RUN, self.command, None, "", reason=error.message)
        return _judge(record, self.command)

    def baseline_key(self, sha: str) -> str:
        """Return the key under which the check's status on a commit is remembered."""
        parts = (str(self.repo.common_dir), sha, self.command, self.student.image)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _judge(record: RunRecord, command: str) -> Verification:
    log = "\n".join(record.output)
    code = record.finished.get("command_exit_code")
    code = code if isinstance(code, int) else None
    if record.disk_exceeded:
        return Verification(FAILED, command, code, log, reason=record.disk_exceeded)
    if record.exit_code == 0 and code == 0:
        return Verification(PASSED, command, 0, log)
    if code in NOT_EXECUTABLE:
        return Verification(COULD_NOT_RUN, command, code, log, reason="the shell could not run it")
    if record.exit_code is None:
        return Verification(COULD_NOT_RUN, command, None, log, reason="its container was lost")
    reason = str(record.finished.get("reason") or "")
    return Verification(
        FAILED, command, code, log, reason="" if code else reason or f"container exit {record.exit_code}"
    )
