"""``python3 -m orchestrator.teacher`` runs a teacher; ``... health`` tells whether it is healthy (exit code 0 or 1)."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from orchestrator.errors import SchoolError
from orchestrator.personas import load_soul
from orchestrator.review.model import GateModel
from orchestrator.review.record import read_seal_key
from orchestrator.review.reviewer import Reviewer
from orchestrator.teacher import health
from orchestrator.teacher.config import TeacherConfig, sessions_folder
from orchestrator.teacher.loop import TeacherLoop

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run, or check."""
    if list(argv) == ["health"]:
        problem = health.problem(sessions_folder(os.environ))
        print(problem or "healthy")  # noqa: T201 - a command's output
        return 1 if problem else 0
    if argv:
        print("usage: python3 -m orchestrator.teacher [health]", file=sys.stderr)  # noqa: T201
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run()
    except SchoolError as error:
        logging.getLogger("school.teacher").error("%s %s", error.message, error.next_step)  # noqa: TRY400 - for people
        return error.exit_code
    return 0


def run() -> None:
    """Run a teacher until SIGTERM or SIGINT.

    Raises:
        ConfigError: the environment, the seal key or the persona can't be used.
    """
    config = TeacherConfig.from_env(os.environ)
    reviewer = Reviewer(
        config.teacher,
        GateModel(config.gate_socket),
        config.model,
        config.budget,
        persona=load_soul(f"teacher-{config.teacher}"),
        timeout=config.review_timeout,
    )
    loop = TeacherLoop(config, reviewer, read_seal_key(config.seal_key))
    # as PID 1 of a container there is no default action for signals
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    loop.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
