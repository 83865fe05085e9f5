"""`school staff`, as typed."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def cli(tmp_path):
    env = {**os.environ, "SCHOOL_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}

    def run(*arguments, **more):
        argv = [sys.executable, "-m", "orchestrator.cli.main", *arguments]
        return subprocess.run(argv, env={**env, **more}, capture_output=True, text=True, check=False)

    return run


def test_the_plugins_and_their_limits_are_listed(cli):
    rows = json.loads(cli("staff", "list", "--json").stdout)
    assert [(row["name"], row["trust"]) for row in rows] == [
        ("janitor", "core"),
        ("session_manager", "core"),
        ("score_auditor", "core"),
        ("adversarial_reviewer", "verified"),
    ]
    assert "500 reads, 50 writes" in cli("staff", "list").stdout


def test_all_run_on_a_new_home(cli):
    done = cli("staff", "run", "all", "--json")
    assert done.returncode == 0
    assert {run["status"] for run in json.loads(done.stdout)} == {"ok"}
    assert "janitor  ok" in cli("staff", "run", "janitor", "--dry-run").stdout


def test_a_plugin_that_is_not_there_ends_with_2(cli):
    assert cli("staff", "run", "gardener").returncode == 2
    assert cli("staff", "list", SCHOOL_STAFF_PLUGINS="gardener").returncode == 2
