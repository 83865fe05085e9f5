"""Whatever a leaf writes, its readers give a value or nothing; they raise nothing (R-3, R-25)."""

import contextlib
import io
import json

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.live import Live
from orchestrator.cli.terminal import Terminal
from orchestrator.engine.base import Exited
from orchestrator.errors import ConfigError
from orchestrator.leaf.ending import Ending, classify
from orchestrator.leaf.outbox import read_json
from orchestrator.leaf.run import RunRecord, parse_event
from orchestrator.sandbox.repo_config import RepoConfig, parse_config

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(
    [
        "turn",
        "tool.call",
        "tool.result",
        "message",
        "output",
        "agent.started",
        "agent.finished",
        "warning",
        "error",
        "entry.finished",
        "usage",
    ]
)
FIELDS = st.sampled_from(
    ["text", "name", "preview", "ok", "reason", "status", "agent", "model", "n", "command_exit_code", "calls"]
)
EVENTS = st.builds(lambda kind, fields: {**fields, "type": kind}, TYPES, st.dictionaries(FIELDS, VALUES))


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_an_event_or_none(line):
    event = parse_event(line)
    assert event is None or isinstance(event["type"], str)


@given(st.lists(EVENTS, max_size=20))
def test_any_event_can_be_folded_in_shown_and_judged(events):
    record, stream = RunRecord(), io.StringIO()
    live = Live(Terminal(stream))
    for event in events:
        parsed = parse_event(json.dumps(event).encode())
        assert parsed is not None
        record.take(parsed)
        live.agent_event(parsed)
    assert all(isinstance(text, str) for text in record.output)
    assert isinstance(classify(Exited(3), agent_reason=str(record.finished.get("reason") or "")), Ending)
    assert not [c for c in stream.getvalue() if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]


def test_bombs_are_none():
    for line in (
        b"[" * 100_000,
        b'{"type":' * 50_000,
        b'{"type":"x","n":' + b"9" * 5000 + b"}",
        b'{"type": 3}',
        b"\xff" * 10,
        b"{}",
    ):
        assert parse_event(line) is None


@given(st.binary(max_size=2000) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_outbox_file_is_an_object_or_none(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("outbox")
    (folder / "outcome.json").write_bytes(data)
    found = read_json(folder, "outcome.json")
    assert found is None or isinstance(found, dict)


TOML = st.sampled_from(
    [
        "student",
        "verify",
        "objects",
        "egress",
        "packages",
        "setup",
        "image",
        "command",
        "mode",
        "allow",
        "[",
        "]",
        "=",
        '"',
        "'",
        "\n",
        ".",
        "1",
        "true",
        "{",
        "}",
        ",",
        "#",
        "é",
        "\x00",
    ]
)


@given(st.text() | st.lists(TOML, max_size=40).map("".join))
def test_any_repository_config_is_one_or_a_config_error(text):
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_config(text), RepoConfig)
