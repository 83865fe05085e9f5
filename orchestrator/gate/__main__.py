"""``python3 -m orchestrator.gate`` serves; ``python3 -m orchestrator.gate health`` is the container's healthcheck.

Environment: ``SCHOOL_UPSTREAM`` (the gateway's URL) and ``SCHOOL_GATE_ROOT`` (default: layout.GATE_ROOT).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator import layout

DEFAULT_UPSTREAM = "http://omniroute:20128"


def root() -> Path:
    """Return the gate's root folder."""
    return Path(os.environ.get("SCHOOL_GATE_ROOT") or layout.GATE_ROOT)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    if argv == ["health"]:
        from orchestrator.gate.health import healthy  # noqa: PLC0415 - must start fast: no aiohttp

        return 0 if healthy(root() / "control" / "control.sock") else 1
    if argv:
        print("usage: python3 -m orchestrator.gate [health]", file=sys.stderr)  # noqa: T201 - a command's usage
        return 2
    from orchestrator.gate.serve import serve  # noqa: PLC0415 - only the server pays for aiohttp

    return serve(root(), os.environ.get("SCHOOL_UPSTREAM") or DEFAULT_UPSTREAM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
