"""The workflows parse, and each command in them and in their page exists."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from orchestrator.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = (ROOT / ".github" / "workflows" / "ci.yml", ROOT / "examples" / "github-workflow.yml")


def steps(path: Path) -> list[dict]:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def command_lines(path: Path) -> list[list[str]]:
    """Every `school …` in a workflow's scripts, up to the shell's next operator."""
    lines = []
    for step in steps(path):
        script = step.get("run", "").partition("<<'END'")[0].replace("\\\n", " ")
        found = re.findall(r"(?:^|\| |&& )\s*school ([^|>&\n]+)", script, re.MULTILINE)
        lines += [shlex.split(words) for words in found]
    return lines


def options(words: list[str]) -> set[str]:
    """The options that a command takes, from the command itself."""
    import importlib

    module = importlib.import_module(f"orchestrator.cli.{COMMANDS[words[0]][0]}")
    command = typer.main.get_command(module.app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_job_has_a_time_limit_and_may_only_read(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_expression_is_pasted_into_a_script(path):
    """What a person types must not become part of a shell script."""
    assert not [step["run"] for step in steps(path) if "${{" in step.get("run", "")]


def test_the_example_uses_commands_and_options_that_exist():
    lines = command_lines(WORKFLOWS[1])
    assert {words[0] for words in lines} >= {"gateway", "up", "spawn", "clean"}
    for words in lines:
        assert words[0] in COMMANDS
        assert {word for word in words if word.startswith("--")} <= options(words), words


def test_the_page_names_commands_that_exist():
    page = (ROOT / "docs" / "ci-recipe.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`school (\w+)", page)) <= set(COMMANDS)


def test_what_must_always_run_runs_always():
    last = steps(WORKFLOWS[1])[-2:]
    assert [str(step["if"]) for step in last] == ["always()", "always()"]


def test_the_project_s_workflow_runs_what_the_script_runs():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    targets = set(re.findall(r"^make (\w+)$", script, re.MULTILINE))
    assert targets == {"check", "test"}
    runs = " ".join(step.get("run", "") for step in steps(WORKFLOWS[0]))
    assert set(re.findall(r"\bmake (\w+)", runs)) == targets
