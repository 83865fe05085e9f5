from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.review.evidence import read_evidence
from orchestrator.review.model import Completion, Usage

if TYPE_CHECKING:
    from pathlib import Path

BEAD = "coder-general-0badcafe"
HEAD = "b" * 40
BASE = "a" * 40
DIFF = """diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1 +1,2 @@
-x = 1
+x = 2
+y = 3
"""


class EvidenceFolder:
    """Writes an evidence folder as the principal does."""

    def __init__(self, root: Path, bead: str = BEAD) -> None:
        self.root = root
        self.bead = bead
        self.folder = root / bead
        self.folder.mkdir(parents=True, mode=0o700)
        self.parts: list[dict] = []
        self.index: dict = {
            "v": 1,
            "bead": bead,
            "repo": "/repo",
            "base_sha": BASE,
            "head_sha": HEAD,
            "role": "coder",
            "domain": "general",
            "difficulty": "medium",
            "task": "set x to 2",
            "expected_output_format": "",
            "instructions": "",
            "files": [{"path": "src/a.py", "status": "M", "additions": 2, "deletions": 1, "binary": False}],
            "student": {"output": "done", "summary": "", "messages": [], "agent": "light", "status": "completed"},
            "verification": {
                "status": "passed",
                "command": "make test",
                "exit_code": 0,
                "log_file": None,
                "baseline": None,
            },
            "cut": [],
        }

    def part(self, name: str, text: str | bytes, path: str | None = None, **more: object) -> None:
        raw = text if isinstance(text, bytes) else text.encode()
        target = self.folder / name
        target.parent.mkdir(exist_ok=True, mode=0o700)
        target.write_bytes(raw)
        entry = {"name": name, "path": path, "sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
        self.parts.append(entry | {"truncated": False} | more)

    def write(self, **changes: object) -> EvidenceFolder:
        self.index |= changes
        (self.folder / "evidence.json").write_text(json.dumps(self.index | {"parts": self.parts}))
        return self

    def read(self):
        return read_evidence(self.root, self.bead)


class ScriptedModel:
    """Answers with the given texts in order and keeps what it was asked; an exception among them is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list = []

    def complete(self, model, messages, *, bead, deadline):
        assert deadline > time.monotonic()
        self.asked.append(list(messages))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Completion(text, Usage(1, 100, 10), "scripted")


def answer(verdict: str = "PASS", /, *severities: str, **changes: object) -> dict:
    findings = [
        {
            "section": "src/a.py:1",
            "issue_class": "off_by_one",
            "severity": severity,
            "citation": "x = 2",
            "description": "It is one too many.",
            "suggestion": "Use 1.",
        }
        for severity in severities
    ]
    return {
        "verdict": verdict,
        "confidence": 0.8,
        "summary": "Looked at it.",
        "ac_met": [{"criterion": "x is 2", "met": True, "evidence": "src/a.py:1"}],
        "findings": findings,
    } | changes


@pytest.fixture
def evidence_folder(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path / "evidence")


@pytest.fixture
def bag() -> dict:
    return {"bead": BEAD, "head_sha": HEAD, "output": "done", "coo_verdict": "PASS", "coo_summary": "SECRET OF THE COO"}


@pytest.fixture
def make_answer():
    return answer


@pytest.fixture
def scripted():
    return ScriptedModel
