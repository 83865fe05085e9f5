"""docs/spawn.schema.json and docs/spawn.md say what `school spawn --json` prints."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from orchestrator.bookbag import STATES
from orchestrator.bookbag.record import FINDING_FIELDS, SEVERITIES
from orchestrator.cli.main import show_error
from orchestrator.errors import BlockedError, ImageBuildError, RepoSetupError, SchoolError, UsageError
from orchestrator.leaf.brief import ROLES
from orchestrator.principal.report import Report, usage_of
from orchestrator.sandbox.outcome import CLEANUP_FAILED, Outcome

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCHEMA = json.loads((DOCS / "spawn.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
SHA1, SHA256 = "a1" * 20, "b2" * 32


def printed(report: Report) -> dict:
    return json.loads(json.dumps(report.to_json(), default=str))


def finding(**over) -> dict:
    return {"teacher": "cto", **dict.fromkeys(FINDING_FIELDS, "text"), "severity": "LOW", **over}


def accepted(**over) -> Report:
    """A report with every field filled, as the conductor fills it."""
    values = {
        "bead": "coder-general-1a2b3c4d",
        "outcome": Outcome.ACCEPTED,
        "reason": "both judges passed it",
        "state": "DISPOSED",
        "accepted": True,
        "verdicts": {"cto": "PASS", "coo": "PASS"},
        "scores": {"cto": 92.5, "coo": 100},
        "findings": [finding(), finding(teacher="coo", severity="HIGH")],
        "task": "do it",
        "role": "coder",
        "agent": "light",
        "model": "auto/coding:reliable",
        "rehearsal": True,
        "review": "async",
        "repo": "/home/u/répo",
        "branch": "school/coder-general-1a2b3c4d",
        "base_sha": SHA1,
        "head_sha": SHA1,
        "files_changed": ["a b.py"],
        "diffstat": {"files": 1, "additions": 2, "deletions": 3},
        "output": "done",
        "verification": {"status": "passed", "command": "make test", "exit_code": 0, "log": "ok", "baseline": None},
        "usage": {
            "student": usage_of(
                {"calls": 3, "prompt_tokens": 10, "completion_tokens": 5, "cost_usd": 0.01, "refused": 1}
            ),
            "cto": usage_of(None),
            "coo": usage_of({"calls": 1, "prompt_tokens": 9, "completion_tokens": 9, "cost_usd": None}),
        },
        "score": {"old": 50.0, "new": 65.0},
        "cleanup": "done",
        "timings": {"boot": 228.1, "total": 4000.0},
        "diagnostics": ["a note"],
    }
    return Report(**(values | over))


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


def test_a_full_report_fits():
    VALIDATOR.validate(printed(accepted()))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_report_that_ended_early_fits_whatever_its_outcome(outcome):
    report = Report(bead="b1", outcome=outcome, role="coder", agent="light", base_sha=SHA256)
    VALIDATOR.validate(printed(report))


@pytest.mark.parametrize(
    "over",
    [
        {"outcome": "finished"},
        {"outcome": ""},
        {"base_sha": "HEAD"},
        {"verdicts": {"cto": "PASS"}},
        {"scores": {"cto": 101, "coo": 0}},
        {"findings": [{**finding(), "severity": "BAD"}]},
        {"findings": [{**finding(), "more": 1}]},
        {"usage": {"student": {}, "cto": {}, "coo": {}}},
        {"cleanup": "later"},
        {"timings": {"boot": "fast"}},
    ],
)
def test_what_is_not_as_described_is_refused(over):
    assert not VALIDATOR.is_valid(printed(accepted(**over)))


def test_the_report_has_the_fields_of_the_schema_and_no_more():
    described = SCHEMA["$defs"]["report"]
    assert set(described["properties"]) == set(described["required"]) == {f.name for f in dataclasses.fields(Report)}


def test_the_schema_lists_the_program_s_own_words():
    report = SCHEMA["$defs"]["report"]["properties"]
    assert report["outcome"]["enum"] == [str(outcome) for outcome in Outcome]
    assert report["state"]["enum"] == ["", *STATES]
    assert report["role"]["enum"] == list(ROLES)
    described = SCHEMA["$defs"]["finding"]
    assert set(described["properties"]) == set(described["required"]) == {"teacher", *FINDING_FIELDS}
    assert set(described["properties"]["severity"]["enum"]) == set(SEVERITIES)


@pytest.mark.parametrize(
    "error",
    [
        UsageError("wrong", next_step="right"),
        BlockedError("busy"),
        ImageBuildError("failed", log_tail="E: no", next_step="see above"),
        RepoSetupError("failed", log_tail="npm ERR"),
        SchoolError("odd"),
    ],
)
def test_an_error_fits_and_goes_to_people_too(error, capsys):
    show_error(error, as_json=True)
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    VALIDATOR.validate(json.loads(said.out))
    assert error.message in said.err


def test_json_can_be_printed_whatever_a_name_holds_and_wherever_it_goes(capsysbinary):
    """A path that is not UTF-8 comes as surrogates, and stdout may be Latin-1: only ASCII can't fail."""
    show_error(UsageError("no such file: \udcff é"), as_json=True)
    said = capsysbinary.readouterr()
    assert said.out.isascii()
    assert json.loads(said.out)["message"] == "no such file: \udcff é"


def test_what_a_stranger_wrote_can_t_steer_the_terminal(capsys):
    show_error(RepoSetupError("failed \x1b[2J", log_tail="ok\nnpm \x1b]0;title\x07 ERR"), as_json=False)
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "ok\nnpm" in said


def test_a_refused_request_prints_one_object_and_ends_with_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", "spawn", "--repo", ".", "--role", "chef", "--json", "cook"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "SCHOOL_HOME": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 2
    VALIDATOR.validate(json.loads(done.stdout))
    assert "--role" in done.stderr


def test_the_page_lists_every_outcome_with_its_exit_code():
    page = (DOCS / "spawn.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(outcome.exit_code, outcome.value) for outcome in Outcome]
    assert CLEANUP_FAILED == 8


def test_a_failed_cleanup_shows_in_the_exit_code_of_accepted_work_only():
    assert accepted(cleanup="failed").exit_code == CLEANUP_FAILED
    assert accepted(outcome=Outcome.REJECTED, cleanup="failed").exit_code == 1
    assert accepted().exit_code == 0
