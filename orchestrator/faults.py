"""Where a test ends the principal as a crash would, by SIGKILL.

Each step of a bead's way has two points: ``<step>:intent`` right after its intent was noted, and ``<step>`` right after
its effect, before that is noted. Effects that are several have points of their own between them. A new step has its
points by being a step of the journal; which points a bead passes is written to the file that ``SCHOOL_FAULT_TRACE``
names, so that tests/crash can't forget one. ``SCHOOL_FAULT_AT=<point>`` is where to die.
"""

from __future__ import annotations

import os
import signal

_AT = os.environ.get("SCHOOL_FAULT_AT", "")
_TRACE = os.environ.get("SCHOOL_FAULT_TRACE", "")


def fault_point(name: str) -> None:
    """End this process when the environment says so."""
    if _TRACE:
        with open(_TRACE, "a", encoding="ascii") as file:  # noqa: PTH123 - no pathlib for a hook that is mostly off
            file.write(f"{name}\n")
    if name == _AT:
        os.kill(os.getpid(), signal.SIGKILL)
