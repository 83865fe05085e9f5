"""PID 1 of a student leaf, run as a script: says that it is there, then becomes the supervisor.

A script is compiled at each start and its imports delay the first event, so this file stays small and
imports nothing that the interpreter has not loaded already; the rest is in ``supervisor``, which is compiled in
the image's layer.
"""

from __future__ import annotations

import os
import sys
import time


def main() -> int:
    """Emit ``entry.started`` and supervise the agent; return the container's exit code (see ``supervisor``)."""
    agent = os.environ.get("SCHOOL_AGENT", "")
    if not agent.isidentifier() or not agent.isascii():
        agent = "unknown"
    first = f'{{"v":1,"ts":{time.time():.3f},"type":"entry.started","agent":"{agent}"}}\n'.encode("ascii")
    os.write(1, first)
    library = __file__.rsplit("/", 3)[0]
    if library not in sys.path:
        sys.path.insert(0, library)
    from orchestrator.agents import supervisor

    return supervisor.main(agent, first)


if __name__ == "__main__":
    sys.exit(main())
