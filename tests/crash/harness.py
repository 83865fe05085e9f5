"""A process that forks principals: each drives one bead as `school spawn` does, and may be told where to die.

Imported once, so that a hundred crashes cost no hundred starts of the interpreter. Reads jobs (JSON lines: a request,
`at`, a fault point, and `after`, seconds after which the kernel ends it whatever it does) from stdin, runs some at
once, and prints one line a job with how its principal ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys

PARALLEL = 3


def main() -> None:
    from orchestrator import faults
    from orchestrator.errors import SchoolError
    from orchestrator.principal.journal import Quiet
    from orchestrator.principal.request import SpawnRequest
    from orchestrator.principal.way import drive

    def become_principal(job: dict) -> int:
        faults._AT = job["at"]
        signal.setitimer(signal.ITIMER_REAL, job.get("after", 0))  # SIGALRM without a handler ends a process at once
        try:
            return drive(SpawnRequest.from_json(job["request"]), Quiet()).exit_code
        except SchoolError as error:
            print(error.message, file=sys.stderr, flush=True)
            return error.exit_code

    jobs = [json.loads(line) for line in sys.stdin]
    running: dict[int, dict] = {}
    while jobs or running:
        while jobs and len(running) < PARALLEL:
            job = jobs.pop(0)
            pid = os.fork()
            if pid == 0:
                os.setsid()  # the whole of one principal can be killed by its group
                os._exit(become_principal(job))
            running[pid] = job
        pid, status = os.wait()
        job = running.pop(pid, None)
        if job is not None:
            ended = os.waitstatus_to_exitcode(status)
            print(json.dumps({"bead": job["request"]["bead"], "at": job["at"], "ended": ended}), flush=True)


if __name__ == "__main__":
    main()
