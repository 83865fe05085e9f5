"""Orca behind its adapter, against a stand-in (R-28, R-102, R-103)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import RuntimeRailError, UsageError
from orchestrator.rails.runtime import OrcaRuntime, OutsideWorktree, find_orca

ROOT = Path(__file__).parents[3]


@pytest.fixture
def repo(tmp_path):
    path = tmp_path / "repo"
    identity = ["-c", "user.name=u", "-c", "user.email=u@x"]
    subprocess.run(["git", "init", "-q", path], check=True)
    subprocess.run(["git", "-C", path, *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = tmp_path / "orca"
    made.mkdir()
    program = tmp_path / "bin" / "orca-ide"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / "fake_orca.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_ORCA", str(made))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ORCA_CLI_COMMAND", raising=False)
    return made


@pytest.fixture
def orca(folder, tmp_path):
    (tmp_path / "locks").mkdir()
    return OrcaRuntime(find_orca(), lock_dir=tmp_path / "locks", sleep=lambda seconds: None)


def calls(folder):
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def test_that_there_is_no_orca_is_normal(monkeypatch):
    assert find_orca({"PATH": "/nowhere"}) is None
    assert find_orca({"PATH": "/nowhere", "ORCA_CLI_COMMAND": "orca-dev"}) is None


def test_the_screen_reader_of_linux_is_never_called(tmp_path):
    reader = tmp_path / "orca"
    reader.write_text("#!/bin/sh\nexit 1\n")
    reader.chmod(0o755)
    env = {"PATH": str(tmp_path)}
    assert find_orca(env, platform="linux") is None
    assert find_orca(env, platform="darwin") == (str(reader),)
    assert find_orca({**env, "ORCA_CLI_COMMAND": f"{reader} --dev"}, platform="linux") == (str(reader), "--dev")


def test_a_worktree_is_made_listed_and_removed_and_nothing_is_left(orca, repo, folder):
    assert orca.running()
    made = orca.ensure_worktree(repo, "study-coder-1a2b3c4d")
    assert made.branch == "study-coder-1a2b3c4d"
    assert Path(made.path, ".git").exists()
    assert orca.worktrees() == [made]
    assert orca.remove_worktree(made, repo)
    assert orca.worktrees() == []
    assert not Path(made.path).exists()


def test_a_repository_is_registered_once_and_a_worktree_found_before_one_is_made_r29(orca, repo, folder):
    first = orca.ensure_worktree(repo, "teacher-cto")
    assert orca.ensure_worktree(repo, "teacher-cto") == first
    assert [worktree.name for worktree in orca.worktrees()] == ["teacher-cto"]
    assert len([call for call in calls(folder) if call[:2] == ["repo", "add"]]) == 1


@pytest.mark.parametrize("mode", ["rm-fails", "rm-forgets"])
def test_a_worktree_that_orca_does_not_remove_is_never_deleted_by_us_r28(orca, repo, folder, mode):
    made = orca.ensure_worktree(repo, "wt")
    Path(made.path, "work").write_text("x")
    (folder / "mode").write_text(mode)
    assert orca.remove_worktree(made, repo) is False
    assert Path(made.path, "work").read_text() == "x"
    assert len([call for call in calls(folder) if call[:2] == ["worktree", "rm"]]) == 2


def test_with_orca_away_git_removes_what_it_knows_and_nothing_else_r28(orca, repo, folder, tmp_path):
    made = orca.ensure_worktree(repo, "wt")
    (folder / "mode").write_text("down")
    assert not orca.running()
    assert orca.remove_worktree(made, repo)
    assert not Path(made.path).exists()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    assert orca.remove_worktree(OutsideWorktree("x", str(stranger), "", "x"), repo) is False
    assert stranger.exists()
    assert orca.remove_worktree(OutsideWorktree("x", str(stranger), "", "x"), tmp_path / "no-repo") is False


def test_an_automation_is_made_once_r102(orca, repo, folder):
    options = {"trigger": "*/15 * * * *", "prompt": "Run it.", "provider": "hermes", "repo": repo}
    first = orca.create_automation("school tick", **options)
    assert orca.create_automation("school tick", **options) == first
    (made,) = [call for call in calls(folder) if call[:2] == ["automations", "create"]]
    assert made[-1] == "--json"
    assert made[made.index("--trigger") + 1] == "*/15 * * * *"


def test_a_terminal_is_closed_by_its_handle(orca, folder):
    orca.close_terminal("term-1")
    assert calls(folder)[-1] == ["terminal", "close", "--terminal", "term-1", "--json"]
    with pytest.raises(UsageError):
        orca.close_terminal("--all")


@pytest.mark.parametrize(("mode", "says"), [("down", "Orca is not running"), ("garbage", "Welcome to Orca")])
def test_an_orca_that_does_not_answer_is_a_clear_error(orca, folder, mode, says):
    (folder / "mode").write_text(mode)
    assert not orca.running()
    with pytest.raises(RuntimeRailError, match=says):
        orca.worktrees()


@pytest.mark.parametrize("name", ["", "-x", "a/b"])
def test_a_name_that_is_none_is_refused(orca, repo, name):
    with pytest.raises(UsageError):
        orca.ensure_worktree(repo, name)


def cli(*arguments):
    argv = [sys.executable, "-m", "orchestrator.cli.main", "runtime", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_as_typed(folder, repo, tmp_path, monkeypatch):
    monkeypatch.setenv("SCHOOL_HOME", str(tmp_path / "home"))
    assert json.loads(cli("status", "--json").stdout)["running"] is True
    assert cli("schedule", "--repo", str(repo)).stdout == "automation auto-0\n"
    assert json.loads(cli("worktrees", "--json").stdout) == []
    monkeypatch.setenv("ORCA_CLI_COMMAND", "/nowhere/orca")
    assert cli("status").stdout == "Orca is not here, which is normal\n"
    assert cli("worktrees").returncode == 2


def test_the_example_for_orca_is_yaml_and_names_programs_of_the_school():
    example = yaml.safe_load((ROOT / "examples" / "orca.yaml").read_text(encoding="utf-8"))
    assert example["scripts"]["setup"] == "school up"
