"""One kernel lock per repository: ``git worktree add`` and ``remove`` race with themselves (FACTS)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from typing import TYPE_CHECKING

from orchestrator.errors import GitError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def repository_lock(lock_dir: Path, common_dir: Path, *, timeout: float = 60.0) -> Iterator[None]:
    """Hold the lock of the repository ``common_dir``. The kernel frees it when the process ends, however it ends.

    Args:
        lock_dir: Folder of lock files; made when missing. Never inside the user's repository.
        common_dir: The repository's shared git dir.
        timeout: Seconds to wait for another holder.

    Raises:
        GitError: another process held it all the time.
    """
    lock_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = "repository-" + hashlib.sha256(os.fsencode(common_dir)).hexdigest()[:16] + ".lock"
    descriptor = os.open(lock_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise GitError(
                        f"Another school process has held the lock of {common_dir} for {timeout:g} s.",
                        next_step="See what runs with `school ps`, and try again when it is done.",
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)
