"""A principal of its own for one bead: ``school spawn --detach``.

The bead's id is minted here, so that the caller can name it before the child has done anything; what the child writes
goes to ``logs/beads/<bead>.err`` besides the bead's own log.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

from orchestrator import bookbag
from orchestrator.errors import RailError, SchoolError, UsageError
from orchestrator.principal.desk import task_lock
from orchestrator.principal.dispatch import settle_end, start_child
from orchestrator.principal.journal import Quiet, log_path
from orchestrator.principal.lease import Lease
from orchestrator.principal.request import SpawnRequest
from orchestrator.settings import settings

START_SECONDS = 60.0


def spawn_detached(request: SpawnRequest) -> str:
    """Start the process and return the bead's id once it is being driven.

    Raises:
        SchoolError: the child ended before it drove the bead; the message is the child's own.
    """
    home = settings().home().ensure()
    bead = bookbag.check_bead(request.bead) if request.bead else bookbag.new_bead(request.role, request.domain)
    log = log_path(home, bead)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    errors = log.with_suffix(".err")
    child = start_child(home, replace(request, bead=bead))
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not log.exists():
        code = child.poll()
        if code is not None and not log.exists():
            refused = SchoolError(errors.read_text(errors="replace").strip() or f"the principal ended with {code}")
            refused.exit_code = code
            raise refused
        time.sleep(0.05)
    return bead


def main() -> int:
    """Read a request from stdin, drive it, and tell whoever asked for it (tracker, fix) how it went."""
    from orchestrator.principal.way import drive  # noqa: PLC0415

    request = SpawnRequest.from_json(json.load(sys.stdin))
    home = settings().home()
    lock = Lease.take(task_lock(home, str(request.bead)))
    if lock is None:
        print(f"somebody starts {request.bead} already", file=sys.stderr)  # noqa: T201 - the bead's .err file
        return UsageError.exit_code
    refused: SchoolError | None = None
    try:
        try:
            code = drive(request, Quiet()).exit_code
        except SchoolError as error:
            print(error.message, error.next_step, file=sys.stderr)  # noqa: T201 - the bead's .err file
            code, refused = error.exit_code, error
        try:
            settle_end(home, request, refused)
        except RailError as error:
            print(error.message, error.next_step, file=sys.stderr)  # noqa: T201 - the next tick tries again
    finally:
        lock.release(forget=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
