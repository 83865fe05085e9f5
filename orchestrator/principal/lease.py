"""Kernel locks: who drives a bead, and how many do so at once.

*Owner alive* means *lock held*: the kernel frees a lock when its holder dies in whatever way, and a lock looks the
same from every PID namespace. Adopting a bead is taking its lease (DESIGN, "Lease and ledger first").
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Lease:
    """A held lock on one file. Released by ``release()`` or by the death of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path, *, patience: float = 0.0) -> Lease | None:
        """Take the lock, or return None when somebody holds it for longer than ``patience`` seconds.

        A little patience is for who must not be turned away by somebody that only looks (``held``).
        """
        deadline = time.monotonic() + patience
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.01)
                continue
            if _is_same_file(path, descriptor):
                break
            os.close(descriptor)  # its last holder removed the file between our open and our lock
        os.ftruncate(descriptor, 0)
        boot = _boot_id()
        os.write(descriptor, f"pid {os.getpid()} host {socket.gethostname()} boot {boot}\n".encode())  # for people
        return cls(path, descriptor)

    def release(self, *, forget: bool = False) -> None:
        """Let go; with ``forget`` remove the file too (only a holder may). Idempotent."""
        if self._descriptor is None:
            return
        if forget:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None

    def fileno(self) -> int:
        """Return the descriptor, for handing the lease to a child process."""
        if self._descriptor is None:
            raise ValueError("the lease is released")
        return self._descriptor


def bead_lease_path(leases: Path, bead: str) -> Path:
    """Return the lock file of a bead."""
    return leases / f"bead-{bead}.lock"


def held(path: Path) -> bool:
    """Return whether somebody holds the lock. Only a hint: it may change at once.

    Opened for reading only: who watches the folder (the janitor) is told of the closing of writers, that is of holders.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def slot(leases: Path, name: str, count: int, *, on_wait: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold one of ``count`` slots, over all processes of the home; wait while all are taken (R-27).

    Yields:
        The slot's number.
    """
    waited = False
    delay = 0.02
    while True:
        for number in range(count):
            lease = Lease.take(leases / f"slot-{name}-{number}.lock")
            if lease is not None:
                try:
                    yield number
                finally:
                    lease.release()
                return
        if not waited and on_wait is not None:
            on_wait()
        waited = True
        time.sleep(delay)
        delay = min(delay * 1.5, 0.5)


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        named = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return "unknown"
