"""Asks a running gate whether it is well. Standard library only: it is run every few seconds."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT = 2.0  # seconds


def healthy(control: Path) -> bool:
    """Return whether the gate answers on its control socket."""
    try:
        folder = os.open(control.parent, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(TIMEOUT)
            client.connect(f"/proc/self/fd/{folder}/{control.name}")
            client.sendall(b"GET /health HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n")
            return client.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
    finally:
        os.close(folder)
