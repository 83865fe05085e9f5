"""Makes an accepted bead as the school leaves it: repository, sealed and archived bookbag, evidence, ledger row."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

from orchestrator import bookbag
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.report import Report
from orchestrator.principal.request import SpawnRequest
from orchestrator.principal.sample import make_sample
from orchestrator.review.record import read_seal_key

BEAD = "coder-general-0a0b0c0d"
WHO = {"GIT_AUTHOR_NAME": "S", "GIT_AUTHOR_EMAIL": "s@x", "GIT_COMMITTER_NAME": "S", "GIT_COMMITTER_EMAIL": "s@x"}


def git(repo: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=True, env={**os.environ, **WHO}
    )
    return done.stdout.strip()


class Accepted:
    """One accepted bead in a home."""

    def __init__(self, home, folder: Path, bead: str = BEAD, *, rehearsal: bool = False, **request) -> None:
        self.home, self.bead = home, bead
        self.repo = folder if folder.exists() else make_sample(folder)
        self.base = git(self.repo, "rev-parse", "HEAD")
        git(self.repo, "checkout", "-q", "--detach")
        (self.repo / "stats.py").write_text("def mean(values):\n    return 0.0\n")
        git(self.repo, "commit", "-qam", "Mend")
        self.head = git(self.repo, "rev-parse", "HEAD")
        git(self.repo, "checkout", "-q", "main")
        git(self.repo, "update-ref", f"refs/school/{bead}", self.head)
        git(self.repo, "branch", f"school/{bead}", self.head)
        evidence = json.dumps({"v": 1, "bead": bead}).encode()
        (home.evidence / bead).mkdir()
        (home.evidence / bead / "evidence.json").write_bytes(evidence)
        self.evidence = hashlib.sha256(evidence).hexdigest()
        self.bag = self._bag()
        self.archive()
        self.ledger = Ledger(home.ledger)
        made = SpawnRequest(repo=str(self.repo), task="Mend mean().", **request)
        self.ledger.open_bead(bead, repo=str(self.repo), base_sha=self.base, data={"request": made.to_json()})
        report = Report(
            bead, "accepted", head_sha=self.head, base_sha=self.base, branch=f"school/{bead}", rehearsal=rehearsal
        )
        report.findings = [{"teacher": "cto", "severity": "LOW", "description": "terse", "citation": "stats.py:1"}]
        progress = {"stage": "HANDED_OVER", "evidence_sha256": self.evidence, "verification": {"status": "passed"}}
        self.ledger.update_bead(
            bead,
            status="ended",
            outcome="accepted",
            cleanup="done",
            human="awaiting",
            head_sha=self.head,
            data={"report": report.to_json(), "progress": progress, "reason": "both judges passed it"},
        )

    def _bag(self) -> dict:
        bag = bookbag.new_bookbag(self.bead, head_sha=self.head, base_sha=self.base, output="done", accepted=True)
        for teacher in bookbag.TEACHERS:
            key = read_seal_key(self.home.secret(f"seal-{teacher}.key"))
            said = {
                "verdict": "PASS", "score": 97, "confidence": 0.9, "findings": [], "ac_met": [], "summary": "fine",
                "lens": ["CORRECTNESS"], "reviewed_at": bookbag.now(),
            }  # fmt: skip
            seal = bookbag.make_seal(
                key, bead=self.bead, head_sha=self.head, teacher=teacher, evidence_sha256=self.evidence,
                output_sha256=bookbag.output_digest("done"), mode="async", model="m", **said,
            )  # fmt: skip
            bag |= {f"{teacher}_{name}": value for name, value in {**said, "seal": seal}.items()}
        return {**bag, "state": "DISPOSED"}

    def archive(self) -> None:
        (self.home.archive / f"{self.bead}.json").write_text(json.dumps(self.bag))

    def row(self) -> dict:
        return self.ledger.bead(self.bead)
