"""The sample repository of ``school demo``: a small package, one bug, a test that fails because of it."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

TASK = "mean() of an empty list crashes. Make it return 0.0 and keep the other results."
VERIFY = "python3 -m unittest -q"

MARKER = "school-sample"
FILES = {
    "README.md": "# sample\n\nA small package to try the school on. `python3 -m unittest` runs its tests.\n",
    "AGENTS.md": "Keep functions small. Standard library only. Tests are in test_stats.py and must stay as they are.\n",
    "stats.py": '"""Numbers about numbers."""\n\n\ndef mean(values):\n    """Return the arithmetic mean."""\n'
    "    return sum(values) / len(values)\n\n\ndef spread(values):\n"
    '    """Return the distance between the largest and the smallest value."""\n    return max(values) - min(values)\n',
    "test_stats.py": "import unittest\n\nimport stats\n\n\nclass MeanTest(unittest.TestCase):\n"
    "    def test_of_numbers(self):\n        self.assertEqual(stats.mean([1, 2, 3]), 2.0)\n\n"
    "    def test_of_nothing(self):\n        self.assertEqual(stats.mean([]), 0.0)\n\n\n"
    "class SpreadTest(unittest.TestCase):\n    def test_of_numbers(self):\n"
    "        self.assertEqual(stats.spread([4, 1, 9]), 8)\n",
    ".gitignore": "__pycache__/\n",
}


def make_sample(folder: Path) -> Path:
    """Make the sample repository anew, and return its path.

    Raises:
        UsageError: something else lies there.
    """
    if folder.exists():
        if not (folder / ".git" / MARKER).exists():
            raise UsageError(f"{folder} exists and is not a sample of ours.", next_step="Name another --folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    identity = ("-c", "user.name=School Sample", "-c", "user.email=sample@school.invalid", "-c", "commit.gpgsign=false")
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        (*identity, "commit", "-q", "-m", "Start the sample"),
    ):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
    (folder / ".git" / MARKER).touch()
    return folder
