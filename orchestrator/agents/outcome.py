"""How a leaf's run is concluded: one status, the exit code that goes with it, and the two files in the outbox."""

from __future__ import annotations

import json
import os
import signal
import stat

from orchestrator import layout
from orchestrator.agents.sink import clip
from orchestrator.bookbag import files
from orchestrator.bookbag.submission import make_submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


EXIT_CODES = {
    "completed": 0,
    "failed": 3,
    "timed_out": 4,
    "model_denied": 6,
    "budget_exhausted": 6,
    "interrupted": 143,
}
OUT_OF_MEMORY = 5
STOPPED = {"timed_out": "the time limit was reached", "interrupted": "stopped from outside (SIGTERM)"}
MAX_OUTPUT = 256 * 1024  # characters of the final text
MAX_REASON = 2000
MAX_SUMMARY = 2000


class Conclusion:
    """How the run ended, in the words of outcome.json."""

    __slots__ = ("exit_code", "reason", "status")

    def __init__(self, status: str, reason: str, exit_code: int | None = None) -> None:
        self.status = status
        self.reason = clip(reason, MAX_REASON)
        self.exit_code = EXIT_CODES[status] if exit_code is None else exit_code


def conclude(
    result: dict[str, Any] | None, stopped: str | None, wait_status: int | None, *, out_of_memory: bool
) -> Conclusion:
    """Decide between what the agent says of itself and what PID 1 saw.

    Args:
        result: The agent's own last word, if it came.
        stopped: One of ``STOPPED`` when PID 1 ended the agent before it had said anything final.
        wait_status: Of the agent's process, as from ``waitpid``; None when it was never started or not collected.
        out_of_memory: The kernel killed something in this container for memory.
    """
    if stopped is not None:
        return Conclusion(stopped, STOPPED[stopped])
    if result is not None:
        status = result.get("status")
        if isinstance(status, str) and status in EXIT_CODES:
            return Conclusion(status, str(result.get("reason") or ""))
        return Conclusion("failed", "the agent ended with a status that is not known")
    return _without_result(wait_status, out_of_memory=out_of_memory)


def _without_result(wait_status: int | None, *, out_of_memory: bool) -> Conclusion:
    if wait_status is None:
        return Conclusion("failed", "the agent did not start")
    if not os.WIFSIGNALED(wait_status):
        return Conclusion("failed", f"the agent ended with code {os.WEXITSTATUS(wait_status)} and said no result")
    number = os.WTERMSIG(wait_status)
    if out_of_memory and number == signal.SIGKILL:
        return Conclusion("failed", "the agent was killed by the memory limit", OUT_OF_MEMORY)
    return Conclusion("failed", f"the agent was killed by signal {number}")


def write_outcome(
    outbox: str,
    conclusion: Conclusion,
    *,
    bead: str,
    agent: str,
    output: str,
    usage: dict[str, Any],
    turns: int,
    started: float,
    ended: float,
) -> None:
    """Write outcome.json.

    Raises:
        OSError: The outbox does not take it.
    """
    value = {
        "v": 1,
        "bead": bead,
        "agent": agent,
        "status": conclusion.status,
        "reason": conclusion.reason,
        "output": output,
        "usage": usage,
        "turns": turns,
        "exit_code": conclusion.exit_code,
        "started": round(started, 3),
        "ended": round(ended, 3),
    }
    _replace(outbox, layout.OUTCOME_FILE, json.dumps(value).encode("ascii") + b"\n")


def write_bookbag(outbox: str, conclusion: Conclusion, *, bead: str, output: str) -> None:
    """Write the student's submission: its own bead and words, no verdicts (R-2, R-5).

    Raises:
        BookbagError: The bead is none, or the submission can't be made to fit.
        OSError: The outbox does not take it.
    """
    summary = clip(output.strip().partition("\n\n")[0], MAX_SUMMARY)
    blockers = [conclusion.reason] if conclusion.status != "completed" and conclusion.reason else []
    data = make_submission(bead, output=output, summary=summary, blockers=blockers)
    _replace(outbox, layout.SUBMISSION_FILE, data)


def _replace(folder: str, name: str, data: bytes) -> None:
    """Put a file in the outbox; a folder that a student made at its name is put aside. Read soon, so not synced."""
    target = f"{folder}/{name}"
    try:
        in_the_way = stat.S_ISDIR(os.lstat(target).st_mode)
    except FileNotFoundError:
        in_the_way = False
    if in_the_way:
        os.rename(target, f"{folder}/.displaced.{os.urandom(6).hex()}")  # noqa: PTH104 - no pathlib in PID 1
    files.replace_file(folder, name, data, durable=False)
