from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.bookbag import Dirs, make_seal, new_bookbag, output_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
KEY = b"k" * 32


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    return Dirs(tmp_path / "bookbag", tmp_path / "signals", tmp_path / "locks")


@pytest.fixture
def python(dirs: Dirs) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python program in a process of its own, with the test's folders in its environment."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "BOOKBAG_DIR": dirs.bookbags,
            "SIGNAL_DIR": dirs.signals,
            "LOCK_DIR": dirs.locks,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def finding() -> dict[str, str]:
    return {
        "section": "src/app.py",
        "issue_class": "off-by-one",
        "severity": "LOW",
        "citation": "src/app.py:12",
        "description": "The last item is skipped.",
        "suggestion": "Use <=.",
    }


@pytest.fixture
def reviewed(finding: dict[str, str]) -> dict[str, object]:
    """A record with CTO's sealed PASS in it, and nothing of COO."""
    review = {
        "verdict": "PASS",
        "score": 96,
        "confidence": 0.8,
        "findings": [finding],
        "ac_met": ["it compiles"],
        "summary": "fine",
        "lens": ["CORRECTNESS", "SECURITY"],
        "reviewed_at": "2026-01-02T03:04:05Z",
    }
    bag = new_bookbag("coder-x-1", output="done", head_sha="a" * 40, state="CTO_REVIEWED")
    bag |= {f"cto_{name}": value for name, value in review.items()}
    bag["cto_seal"] = make_seal(
        KEY,
        bead="coder-x-1",
        head_sha="a" * 40,
        teacher="cto",
        evidence_sha256="e" * 64,
        output_sha256=output_digest("done"),
        mode="async",
        model="rehearsal",
        **review,
    )
    return bag
