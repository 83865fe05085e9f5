"""One kernel lock a bead (R-19 to R-21).

``flock`` on a file in the shared folder: it works between containers of one kernel whatever their PID namespaces,
and the kernel frees it at the holder's death, whatever the death. The line inside names the owner for people and
is never read by a program. The lock belongs to an open file description, so two threads of one process exclude
each other like two processes do.

A lock file may be unlinked only by who holds the lock (``forget_lock``). Whoever waited for it then holds a lock
on a file that nobody else will ever open: so after each ``flock`` the file is compared with what its name leads to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from orchestrator.bookbag import files
from orchestrator.bookbag.bead import check_bead
from orchestrator.bookbag.dirs import Dirs
from orchestrator.bookbag.record import now
from orchestrator.bookbag.store import read_bookbag, write_bookbag
from orchestrator.errors import BookbagCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

DEFAULT_TIMEOUT = 10.0
"""Seconds to wait for a lock (R-47)."""

SUFFIX = ".lock"

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05

# A child made by fork shares the parent's open file descriptions: it would keep a lock alive beyond its
# holder's death. So the descriptors are known, and closed in the child; opening and fork exclude each other.
_guard = threading.RLock()
_open: set[int] = set()
_held: dict[tuple[int, str, str], BeadLock] = {}


def _after_fork_in_child() -> None:
    global _guard  # noqa: PLW0603 - the parent's guard may be held by a thread that does not exist here
    _guard = threading.RLock()
    for descriptor in _open:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _open.clear()
    _held.clear()


os.register_at_fork(
    before=lambda: _guard.acquire(),  # noqa: PLW0108 - looked up at each fork: the guard is replaced in children
    after_in_parent=lambda: _guard.release(),  # noqa: PLW0108
    after_in_child=_after_fork_in_child,
)


class BeadLock:
    """The lock of one bead, held or not. Not reentrant: whoever holds it waits in vain for itself.

    As a context manager it raises ``TimeoutError`` when the lock can't be had in time.
    """

    def __init__(self, bead: str, timeout: float = DEFAULT_TIMEOUT, *, dirs: Dirs | None = None) -> None:
        self.bead = check_bead(bead)
        self.timeout = timeout
        self._folder = (dirs or Dirs.from_env()).locks
        self._name = self.bead + SUFFIX
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, timeout: float | None = None) -> bool:
        """Take the lock, waiting for at most ``timeout`` seconds; return whether it was taken."""
        if self.held:
            raise RuntimeError(f"this lock of bead {self.bead} is held already")
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        pause = _FIRST_PAUSE
        while not self._try():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    def release(self, *, unlink: bool = False) -> None:
        """Free the lock; nothing happens when it is not held. ``unlink`` removes its file first."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            if unlink:
                files.remove_file(self._folder, self._name)
            else:
                os.ftruncate(descriptor, 0)
        finally:
            # by name, not by closing alone: a child between fork and exec has a copy of the descriptor for a moment
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            _close(descriptor)

    def _try(self) -> bool:
        descriptor = self._open()
        taken = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = self._is_current(descriptor)
        except BlockingIOError:
            return False
        finally:
            if not taken:
                _close(descriptor)
        if taken:
            self._descriptor = descriptor
            with contextlib.suppress(OSError):  # a full disk: the line is for people, the lock is held without it
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.uname().nodename} pid {os.getpid()} since {now()}\n".encode(), 0)
        return taken

    def _is_current(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            named = os.lstat(f"{self._folder}/{self._name}")
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)

    def _open(self) -> int:
        path = f"{self._folder}/{self._name}"
        while True:
            with _guard:
                try:
                    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                except FileNotFoundError:
                    descriptor = -1
                except PermissionError:
                    raise
                except OSError as error:  # ELOOP: a link; ENXIO: a socket
                    raise BookbagCorruptError(f"{path} is not a lock file: {error.strerror}") from error
                else:
                    _open.add(descriptor)
            if descriptor == -1:
                self._make()
                continue
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                _close(descriptor)
                raise BookbagCorruptError(f"{path} is not a regular file", next_step=f"remove it: {path}")
            return descriptor

    def _make(self) -> None:
        """Give the lock file its name only once it belongs to the folder's owner."""
        folder = files.open_folder(self._folder)
        try:
            temporary, descriptor = files.make_temporary(folder, self._name)
            os.close(descriptor)
            try:
                with contextlib.suppress(FileExistsError):  # somebody else was first: that file is the lock
                    os.link(temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                os.unlink(temporary, dir_fd=folder)
        finally:
            os.close(folder)

    def __enter__(self) -> Self:
        if not self.acquire():
            raise TimeoutError(f"the lock of bead {self.bead} was held by others for {self.timeout} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _close(descriptor: int) -> None:
    with _guard:
        _open.discard(descriptor)
        os.close(descriptor)


def bead_lock(bead: str, timeout: float = DEFAULT_TIMEOUT, *, dirs: Dirs | None = None) -> BeadLock:
    """Return the bead's lock, to be used in a ``with``.

    Raises:
        TimeoutError: On entering, when others held it for all of ``timeout`` seconds.
        InvalidBeadError: ``bead`` is outside the grammar (R-6).
    """
    return BeadLock(bead, timeout, dirs=dirs)


def acquire_lock(bead: str, timeout: float = DEFAULT_TIMEOUT, *, dirs: Dirs | None = None) -> bool:
    """Take a bead's lock for the current thread; return False when it can't be had in ``timeout`` s (R-19)."""
    where = dirs or Dirs.from_env()
    lock = BeadLock(bead, timeout, dirs=where)
    if not lock.acquire():
        return False
    _held[threading.get_ident(), where.locks, bead] = lock
    return True


def release_lock(bead: str, *, dirs: Dirs | None = None) -> None:
    """Free the lock that the current thread took; a lock that it does not hold is left alone (R-19)."""
    where = dirs or Dirs.from_env()
    lock = _held.pop((threading.get_ident(), where.locks, check_bead(bead)), None)
    if lock is not None:
        lock.release()


def forget_lock(bead: str, *, timeout: float = 0.0, dirs: Dirs | None = None) -> bool:
    """Remove a bead's lock file at disposal; return False, leaving it, while somebody holds the lock."""
    lock = BeadLock(bead, timeout, dirs=dirs)
    if not lock.acquire():
        return False
    lock.release(unlink=True)
    return True


def locked_change(
    bead: str,
    change: Callable[[dict[str, Any]], Mapping[str, Any] | None],
    lock_timeout: float = DEFAULT_TIMEOUT,
    *,
    dirs: Dirs | None = None,
) -> dict[str, Any] | None:
    """Read a bookbag, let ``change`` return its new content, write that; all of it under the lock (R-19, R-20).

    Args:
        bead: The bead.
        change: Gets the record; returns the whole new one, or None to leave the file as it is. What it raises
            reaches the caller, and nothing is written.
        lock_timeout: Seconds to wait for the lock.
        dirs: The folders; from the environment by default.

    Returns:
        The record as it now is, or None: no lock in time, or no bookbag.
    """
    where = dirs or Dirs.from_env()
    lock = BeadLock(bead, lock_timeout, dirs=where)
    if not lock.acquire():
        return None
    archived = False
    try:
        bag = read_bookbag(bead, dirs=where)
        archived = bag is None
        if bag is None:
            return None
        changed = change(dict(bag))
        return bag if changed is None else write_bookbag(bead, changed, dirs=where)
    finally:
        lock.release(unlink=archived)  # who comes late must not leave a lock file behind


def locked_update_bookbag(
    bead: str,
    fields: Mapping[str, Any] | None = None,
    /,
    *,
    lock_timeout: float = DEFAULT_TIMEOUT,
    dirs: Dirs | None = None,
    **more: Any,
) -> dict[str, Any] | None:
    """Change some fields of a bookbag under its lock (R-19).

    Args:
        bead: The bead.
        fields: Field values; the way to pass names that are not identifiers, or one of the names below.
        lock_timeout: Seconds to wait for the lock.
        dirs: The folders; from the environment by default.
        **more: Field values.

    Returns:
        The record as written, or None: no lock in time, or no bookbag. The caller skips the bead until its next cycle.
    """
    return locked_change(bead, lambda bag: {**bag, **(fields or {}), **more}, lock_timeout, dirs=dirs)
