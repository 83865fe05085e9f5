"""Scenario files: what is read, what is refused, and with which words."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.rehearsal.scenarios import Library, load

SHIPPED = Path(__file__).parents[3] / "config" / "rehearsals"


def write(folder, text, name="a.yaml"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_the_shipped_scenarios_are_valid():
    library = Library([SHIPPED])
    names = [scenario.name for scenario in library.scenarios()]
    assert library.problems == []
    assert len(names) == len(set(names))
    assert names.index("teacher-fail") < names.index("demo") < names.index("student")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.yaml is not YAML"),
        ("[]", "a.yaml: must be a mapping"),
        ("version: 2", "version must be 1"),
        ("{version: 1, scenarois: []}", "unknown: scenarois; known: order, scenarios, version"),
        ("{version: 1, scenarios: [{name: x}]}", "a.yaml, scenario x: replies is missing or empty"),
        ("{version: 1, scenarios: [{replies: [{}]}]}", "scenario 1, reply 1: says nothing"),
        ("{version: 1, scenarios: [{replies: [{text: 7}]}]}", "text has a value of the wrong kind: 7"),
        ("{version: 1, scenarios: [{replies: [{say: a}]}]}", "reply 1: unknown: say"),
        ("{version: 1, scenarios: [{match: {task: '('}, replies: [{text: a}]}]}", "task is not a regular expression"),
        (
            "{version: 1, scenarios: [{match: {turn: true}, replies: [{text: a}]}]}",
            "turn has a value of the wrong kind",
        ),
        (
            "{version: 1, scenarios: [{replies: [{do: [{fly: a}]}]}]}",
            "action 1: must be one of write, run, patch, finish",
        ),
        ("{version: 1, scenarios: [{replies: [{do: [{write: {path: a}}]}]}]}", "write: content is missing"),
        (
            "{version: 1, scenarios: [{replies: [{malformed: tail}]}]}",
            "malformed must be one of body, arguments, stream",
        ),
        ("{version: 1, scenarios: [{replies: [{error: {message: a}}]}]}", "error: status is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_reason(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text))
    assert message in caught.value.message


def test_a_homes_own_scenarios_are_asked_first_and_read_anew_when_changed(tmp_path):
    library = Library([tmp_path / "own", SHIPPED])
    before = len(library.scenarios())
    (tmp_path / "own").mkdir()
    path = write(tmp_path / "own", "{version: 1, order: 99, scenarios: [{name: mine, replies: [{text: a}]}]}")
    assert library.scenarios()[0].name == "mine"
    write(tmp_path / "own", "{version: 1, scenarios: [{name: other, replies: [{text: a}]}]}")
    assert library.scenarios()[0].name == "other"
    write(tmp_path / "own", "version: 7")
    assert len(library.scenarios()) == before
    assert library.problems == ["a.yaml: version must be 1"]
    os.unlink(path)
    assert len(library.scenarios()) == before
    assert library.problems == []
