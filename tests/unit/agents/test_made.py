"""What a repository's setup made in its tree is in a leaf's worktree as well, and replaces nothing there."""

from __future__ import annotations

import os

import pytest

from orchestrator.agents import made


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "made"
    (folder / "src/d").mkdir(parents=True)
    (folder / "src/d/_version.py").write_text("version = '1'\n")
    (folder / "src/d/fast.so").write_bytes(b"\x7fELF")
    (folder / "src/d/fast.so").chmod(0o755)
    os.utime(folder / "src/d/fast.so", (1, 1))
    return folder


def test_missing_files_are_brought_with_mode_and_time_and_the_worktrees_own_stay(source, tmp_path):
    work = tmp_path / "work"
    (work / "src/d").mkdir(parents=True)
    (work / "src/d/_version.py").write_text("mine\n")
    assert made.bring(str(source), str(work)) == []
    assert (work / "src/d/_version.py").read_text() == "mine\n"
    assert (work / "src/d/fast.so").stat().st_mode & 0o777 == 0o755
    assert (work / "src/d/fast.so").stat().st_mtime == 1


def test_what_can_not_be_brought_is_named_and_the_rest_is_brought(source, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (source / "top.txt").write_text("x")
    (work / "src").write_text("a file where the folder would be")
    problems = made.bring(str(source), str(work))
    assert sorted(problem.partition(":")[0] for problem in problems) == ["src/d/_version.py", "src/d/fast.so"]
    assert (work / "top.txt").read_text() == "x"
