"""``python3 -m orchestrator.rehearsal`` serves; ``… health`` is the container's healthcheck; ``… check FOLDER`` checks.

Environment, for use outside a container: ``SCHOOL_REHEARSAL_OWN``, ``SCHOOL_REHEARSAL_SHIPPED``,
``SCHOOL_REHEARSAL_HOST`` and ``SCHOOL_REHEARSAL_PORT``.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from orchestrator import layout

TIMEOUT = 2.0  # seconds


def _healthy(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: rehearsal\r\nConnection: close\r\n\r\n")
            return client.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    port = int(os.environ.get("SCHOOL_REHEARSAL_PORT") or layout.REHEARSAL_PORT)
    match argv:
        case []:
            from aiohttp import web  # noqa: PLC0415 - only the server pays for it

            from orchestrator.rehearsal.scenarios import Library  # noqa: PLC0415
            from orchestrator.rehearsal.server import Rehearsal, folders  # noqa: PLC0415

            # every address of its container, which only the school's own network reaches
            host = os.environ.get("SCHOOL_REHEARSAL_HOST") or "0.0.0.0"  # noqa: S104
            app = Rehearsal(Library(folders(os.environ))).app()
            web.run_app(app, host=host, port=port, print=None, access_log=None, handler_cancellation=True)
            return 0
        case ["health"]:
            return 0 if _healthy(port) else 1
        case ["check", folder]:
            from orchestrator.rehearsal.scenarios import Library  # noqa: PLC0415

            library = Library([Path(folder)])
            names = [scenario.name for scenario in library.scenarios()]
            print("\n".join(library.problems or names))  # noqa: T201 - what the command is for
            return 1 if library.problems else 0
        case _:
            print("usage: python3 -m orchestrator.rehearsal [health | check FOLDER]", file=sys.stderr)  # noqa: T201
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
