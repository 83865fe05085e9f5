"""How a run is concluded."""

from __future__ import annotations

import json
import signal

import pytest

from orchestrator.agents.outcome import Conclusion, conclude, write_bookbag, write_outcome

KILLED = int(signal.SIGKILL)


@pytest.mark.parametrize(
    ("result", "stopped", "wait_status", "oom", "status", "code"),
    [
        ({"status": "completed"}, None, 0, False, "completed", 0),
        ({"status": "completed"}, None, 0, True, "completed", 0),  # a tool was killed, the agent went on
        ({"status": "failed", "reason": "x"}, None, 0, False, "failed", 3),
        ({"status": "timed_out"}, None, 0, False, "timed_out", 4),
        ({"status": "model_denied"}, None, 0, False, "model_denied", 6),
        ({"status": "budget_exhausted"}, None, 0, False, "budget_exhausted", 6),
        ({"status": "accepted"}, None, 0, False, "failed", 3),
        ({"status": []}, None, 0, False, "failed", 3),
        ({"status": "completed"}, "timed_out", 0, False, "timed_out", 4),
        (None, "timed_out", KILLED, False, "timed_out", 4),
        (None, "interrupted", 15, False, "interrupted", 143),
        (None, None, 0, False, "failed", 3),
        (None, None, 70 << 8, False, "failed", 3),
        (None, None, KILLED, False, "failed", 3),
        (None, None, KILLED, True, "failed", 5),
        (None, None, 11, True, "failed", 3),
        (None, None, None, False, "failed", 3),
    ],
)
def test_status_and_exit_code(result, stopped, wait_status, oom, status, code):
    ended = conclude(result, stopped, wait_status, out_of_memory=oom)
    assert (ended.status, ended.exit_code) == (status, code)
    assert ended.reason or status == "completed" or result


def test_the_files_replace_whatever_the_student_put_there(tmp_path):
    """A folder, and a link that leads elsewhere, at the two names."""
    (tmp_path / "outcome.json").mkdir()
    (tmp_path / "outcome.json" / "x").write_text("x")
    (tmp_path / "elsewhere").write_text("untouched")
    (tmp_path / "bookbag.json").symlink_to(tmp_path / "elsewhere")
    ended = Conclusion("failed", "no compiler")
    write_outcome(
        str(tmp_path), ended, bead="a-b-00000001", agent="light", output="o", usage={}, turns=1, started=1.0, ended=2.0
    )
    write_bookbag(str(tmp_path), ended, bead="a-b-00000001", output="First part.\n\nSecond.")
    assert json.loads((tmp_path / "outcome.json").read_text())["exit_code"] == 3
    bag = json.loads((tmp_path / "bookbag.json").read_text())
    assert (bag["output"], bag["summary"]) == ("First part.\n\nSecond.", "First part.")
    assert (bag["cto_verdict"], bag["coo_verdict"], bag["accepted"]) == ("", "", False)
    assert bag["blockers"] == ["no compiler"]
    assert (tmp_path / "elsewhere").read_text() == "untouched"
