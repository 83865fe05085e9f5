"""skills/school/SKILL.md drives the command line that there is (R-101)."""

import re
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.main import COMMANDS
from orchestrator.personas import lint_soul

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "skills" / "school" / "SKILL.md").read_text(encoding="utf-8")
HEAD = yaml.safe_load(TEXT.split("---\n")[1])
BODY = TEXT.split("---\n", 2)[2]
CALLED = sorted(set(re.findall(r"(?:^|`)school ([a-z]+)\b", BODY, re.MULTILINE)))


def test_it_says_what_it_is_for_and_takes_the_repository_as_its_parameter_r101():
    assert HEAD["name"] == "school"
    assert 40 < len(HEAD["description"]) < 1024
    assert "repo_path" in HEAD["metadata"]["hermes"]["inputs"]
    assert "REPO_PATH" in BODY


def test_it_is_tied_to_no_checkout_r55():
    assert not re.search(r"/home/|/Users/|/work/|~/", BODY)


def test_an_agent_will_load_it():
    assert lint_soul(BODY) == []


@pytest.mark.parametrize("name", CALLED)
def test_each_command_that_it_names_is_there(name):
    assert name in COMMANDS


def test_work_is_started_and_looked_at_by_machine_readable_output():
    for line in re.findall(r"^school (?:spawn|submit|run|tasks|ps|show|logs|diff|doctor) .*$", BODY, re.MULTILINE):
        assert "--json" in line, line
