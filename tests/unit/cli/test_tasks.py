"""`school submit` and `school tasks`, as typed (R-90)."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def cli(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    identity = ["-c", "user.name=u", "-c", "user.email=u@x"]
    subprocess.run(["git", "-C", tmp_path / "repo", *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    env = {**os.environ, "SCHOOL_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}

    def run(*arguments, stdin=""):
        argv = [sys.executable, "-m", "orchestrator.cli.main", *arguments]
        return subprocess.run(argv, env=env, capture_output=True, text=True, input=stdin, cwd=tmp_path, check=False)

    return run


def test_a_task_is_submitted_listed_shown_set_aside_brought_back_and_closed(cli, tmp_path):
    made = json.loads(cli("submit", "--repo", "repo", "--role", "coder", "-p", "0", "--json", "Fix the bug.").stdout)
    assert made["repo"] == str(tmp_path / "repo")
    name = made["id"]
    assert [task["id"] for task in json.loads(cli("tasks", "--ready", "--json").stdout)] == [name]
    assert cli("tasks", "block", name, "--reason", "later").stdout == f"{name} is blocked\n"
    assert json.loads(cli("tasks", "--ready", "--json").stdout) == []
    assert "later" in cli("tasks").stdout
    cli("tasks", "reopen", name)
    assert "Fix the bug." in cli("tasks", "show", name).stdout
    assert json.loads(cli("tasks", "close", name, "--reason", "done", "--json").stdout)["status"] == "closed"
    assert "no tasks" in cli("tasks").stdout


def test_a_task_is_read_from_stdin(cli):
    name = cli("submit", "--repo", "repo", stdin="All\nof it").stdout.strip()
    assert json.loads(cli("tasks", "show", name, "--json").stdout)["text"] == "All\nof it"


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "--repo", "repo", "--role", "king", "x"),
        ("submit", "--repo", "repo", "--difficulty", "x", "x"),
        ("submit", "--repo", "repo", "-p", "9", "x"),
        ("submit", "--repo", "repo", " "),
        ("submit", "--repo", "nowhere", "x"),
        ("submit", "--repo", "repo", "--id", "../x", "x"),
        ("tasks", "show", "none-1"),
    ],
)
def test_what_cannot_be_done_as_typed_ends_with_2_and_a_next_step(cli, arguments):
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("school: ")
    assert len(done.stderr.splitlines()) > 1


def test_a_foreign_text_reaches_the_terminal_without_its_escapes(cli):
    name = cli("submit", "--repo", "repo", "evil \x1b[2J\x07").stdout.strip()
    assert "\x1b" not in cli("tasks").stdout + cli("tasks", "show", name).stdout
