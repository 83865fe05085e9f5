from __future__ import annotations

import fcntl
import os

import pytest

from orchestrator.errors import GitError
from orchestrator.git.locks import repository_lock
from orchestrator.git.run import MINIMUM_VERSION, environment, git, git_version, start


def test_no_git_variable_of_the_caller_reaches_git(repo, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {tmp_path}/ran")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare=true'")
    assert git("rev-parse", "HEAD", cwd=repo.root).stdout.decode().strip() == repo.head_sha
    names = {name for name in environment(isolated=False) if name.startswith("GIT_")}
    assert names == {"GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_LITERAL_PATHSPECS"}


def test_a_failure_carries_gits_own_words_and_a_next_step(repo):
    with pytest.raises(GitError, match=r"git rev-parse failed \(exit 128\): fatal: ") as caught:
        git("rev-parse", "--verify", "nothing", cwd=repo.root)
    assert "Needed a single revision" in caught.value.stderr
    assert caught.value.next_step


def test_a_command_that_hangs_is_ended_with_its_children(repo):
    running = start("cat-file", "--batch", cwd=repo.root, pipe=True)
    stdin = os.dup(running.process.stdin.fileno())  # keeps it waiting for input
    try:
        with pytest.raises(GitError, match="did not end within"):
            running.result(timeout=0.2)
    finally:
        os.close(stdin)
    assert running.process.returncode is not None


def test_git_that_is_not_installed_and_a_folder_that_is_gone_are_told_apart(repo, monkeypatch, tmp_path):
    with pytest.raises(GitError, match="can't be entered"):
        git("status", cwd=tmp_path / "gone")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitError, match="git can't be started"):
        git("status", cwd=repo.root)


def test_a_repositorys_lock_is_waited_for_and_is_outside_of_it(repo, tmp_path):
    locks = tmp_path / "locks"
    with repository_lock(locks, repo.common_dir):
        (file,) = locks.iterdir()
        with pytest.raises(GitError, match="held the lock"), repository_lock(locks, repo.common_dir, timeout=0.05):
            pass
        with repository_lock(locks, tmp_path / "another"):
            pass
    with file.open() as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_installed_git_is_recent_enough():
    assert git_version() >= MINIMUM_VERSION
