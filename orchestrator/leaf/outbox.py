"""Reading what a student left in its outbox: hostile until proven otherwise.

The container is gone when this runs, so nothing changes underneath; names, types, sizes and contents are still
the student's. Files are opened by the folder's descriptor with O_NOFOLLOW, regular ones only, up to a cap.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE = 1 << 20


def read_file(folder: Path, name: str, *, limit: int = MAX_FILE) -> bytes | None:
    """Return a regular file's bytes, or None when it is missing, not a regular file, or larger than ``limit``."""
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )  # O_NONBLOCK: a FIFO would wait for a writer for ever
    except OSError:
        return None
    finally:
        os.close(directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def read_json(folder: Path, name: str, *, limit: int = MAX_FILE) -> dict[str, Any] | None:
    """Return a JSON object from a file, or None when there is no such thing."""
    data = read_file(folder, name, limit=limit)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
