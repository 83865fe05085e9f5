"""Where a test ends the principal as a crash would: SIGKILL right after an effect, before it is noted.

``SCHOOL_FAULT_AT=<step>`` names the step. Every step of a bead's way passes through the journal, so a new step has its
fault point by being a step (tests/crash enumerates them from the ledger of an undisturbed bead).
"""

from __future__ import annotations

import os
import signal

_AT = os.environ.get("SCHOOL_FAULT_AT", "")


def fault_point(step: str) -> None:
    """End this process when the environment says so."""
    if step == _AT:
        os.kill(os.getpid(), signal.SIGKILL)
