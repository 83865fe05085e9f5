"""What a command imports before it has anything to do, and what the table of commands shows."""

import json
import os
import subprocess
import sys

import pytest

from orchestrator.cli.main import COMMANDS

HEAVY = ("docker", "pydantic", "pydantic_settings", "aiohttp", "requests", "yaml", "rich")
PARSER = {"pydantic"}  # later versions of typer check a command's values with it themselves

PROGRAM = """
import json, sys
from orchestrator.cli.main import main
sys.argv = ["school", *json.loads(sys.argv[1])]
try:
    main()
finally:
    print(json.dumps([name for name in {heavy!r} if name in sys.modules]), file=sys.stderr)
"""


def school(tmp_path, *arguments, **environment):
    """Run the command line in a fresh interpreter; return its exit code, its output, and the heavy modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{heavy!r}", repr(HEAVY)), json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SCHOOL_HOME": str(tmp_path / "home"), **environment},
    )
    return done.returncode, done.stdout, json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"]])
def test_help_and_version_import_nothing_heavy(tmp_path, arguments):
    code, output, imported = school(tmp_path, *arguments)
    assert code == 0
    assert output
    assert imported == []


@pytest.mark.parametrize("arguments", [["ps"], ["ps", "--all", "--json"]])
def test_looking_imports_no_engine_no_settings_and_no_web(tmp_path, arguments):
    code, output, imported = school(tmp_path, *arguments)
    assert code == 0
    assert output
    assert set(imported) <= PARSER


def test_looking_makes_no_home(tmp_path):
    school(tmp_path, "ps")
    assert not (tmp_path / "home").exists()


def test_help_lists_every_command_in_the_table_s_order(tmp_path):
    _, output, _ = school(tmp_path, "--help")
    listed = [line.split()[0] for line in output.partition("Commands:")[2].splitlines() if line.strip()]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_the_table_is_there_and_has_help(tmp_path, name):
    code, output, _ = school(tmp_path, name, "--help")
    assert code == 0
    assert f"school {name}" in output


def test_help_keeps_what_stands_in_brackets(tmp_path):
    _, output, _ = school(tmp_path, "spawn", "--help")
    assert "SCHOOL_STUDENT_MODEL" in output


def test_a_name_is_completed_without_importing_any_command(tmp_path):
    _, output, imported = school(
        tmp_path,
        _SCHOOL_COMPLETE="complete_bash",
        COMP_WORDS="school s",
        COMP_CWORD="1",
        _TYPER_COMPLETE_ARGS="school s",
    )
    assert set(output.split()) == {name for name in COMMANDS if name.startswith("s")}
    assert set(imported) <= PARSER


def test_an_unknown_command_is_a_usage_error(tmp_path):
    code, output, _ = school(tmp_path, "spwan")
    assert code == 2
    assert output == ""
