"""Waiting for a change in one of the shared folders, and for fields of a bookbag (R-18, R-48).

Linux tells about changes through inotify; it does so across the bind mounts of containers as well (some ms). It
does not for changes made by another machine or another kernel, so whoever waits also looks now and then: the
``interval``. No wake-up is lost: the watch is set first, the look comes second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import time
from typing import TYPE_CHECKING, Any, Self

from orchestrator.bookbag import files
from orchestrator.bookbag.bead import check_bead
from orchestrator.bookbag.dirs import Dirs
from orchestrator.bookbag.record import TEACHERS, verdict_of
from orchestrator.bookbag.store import SUFFIX, read_bookbag
from orchestrator.errors import HandoffTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

DEFAULT_TIMEOUT = 120.0
"""HANDOFF_TIMEOUT, seconds (R-47)."""

DEFAULT_INTERVAL = 5.0
"""HANDOFF_POLL_INTERVAL, seconds (R-47): how often to look where nothing notifies."""

# from <sys/inotify.h>
_IN_CLOSE_WRITE = 0x8
_IN_MOVED = 0x40 | 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x1000000
_MASK = _IN_CLOSE_WRITE | _IN_MOVED | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_LOST = _IN_Q_OVERFLOW | _IN_IGNORED | _IN_DELETE_SELF | _IN_MOVE_SELF
_EVENT = struct.Struct("iIII")


class Watcher:
    """Watches one folder for files that appear, change or go. Hidden (unfinished) files don't count.

    Changes made after the constructor returned are reported, those before are not: look after making one. Use it
    in one thread; only ``wake()`` may be called from another, or from a signal handler.

    Args:
        folder: The folder; made (0700) when it is missing.
        interval: Seconds between looks where the system does not notify.
        notify: False: don't even try to be notified.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, interval: float = DEFAULT_INTERVAL, notify: bool = True
    ) -> None:
        self._folder = os.fspath(folder)
        self._interval = interval
        os.close(files.open_folder(self._folder))
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._inotify = _inotify_init() if notify else None
        self._watch = -1
        self._seen = {} if self._arm() else self._snapshot()

    @property
    def notified(self) -> bool:
        """Whether the system notifies; otherwise the folder is looked at every ``interval``."""
        return self._watch != -1

    def wait(self, timeout: float | None = None) -> set[str]:
        """Wait for a change.

        Args:
            timeout: Longest wait in seconds; None: as long as it takes.

        Returns:
            The names that changed; empty after the timeout or ``wake()``. When changes were so many, or so deep
            (the folder itself was replaced), that single names are not known: every name in the folder.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if not self.notified:
                if self._arm() and (
                    changed := self._compare()
                ):  # the folder is back; what came before the watch counts
                    return changed
                left = self._interval if left is None else min(self._interval, left)
            if self._wake_read in self._poll(left):
                self._drain_wake()
                return set()
            changed = self._read() if self.notified else self._compare()
            if changed or (deadline is not None and time.monotonic() >= deadline):
                return changed

    def wake(self) -> None:
        """End the current or next ``wait`` at once."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full: it will wake anyway
            os.write(self._wake_write, b"!")

    def close(self) -> None:
        """Stop watching; again is fine."""
        descriptors = (self._inotify, self._wake_read, self._wake_write)
        self._inotify, self._watch, self._wake_read, self._wake_write = None, -1, -1, -1
        for descriptor in descriptors:
            if descriptor is not None and descriptor != -1:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arm(self) -> bool:
        if self._inotify is not None:
            self._watch = _add_watch(self._inotify, self._folder)
        return self.notified

    def _poll(self, timeout: float | None) -> set[int]:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify, select.POLLIN)
        milliseconds = None if timeout is None else max(0.0, timeout) * 1000
        return {descriptor for descriptor, _ in poll.poll(milliseconds)}

    def _read(self) -> set[str]:
        """Return the names in the events that have come; a lost watch is set again first, then everything counts."""
        if self._inotify is None:
            return set()
        names: set[str] = set()
        lost = False
        while True:
            try:
                data = os.read(self._inotify, 65536)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size
                name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
                offset += length
                if watch not in (self._watch, -1):
                    continue  # of a watch that was given up
                lost = lost or bool(mask & _LOST)
                if name and not files.is_temporary(name):
                    names.add(name)
        if lost:
            _remove_watch(self._inotify, self._watch)
            self._arm()
            self._seen = self._snapshot()
            return set(self._seen) | names
        return names

    def _compare(self) -> set[str]:
        before, self._seen = self._seen, self._snapshot()
        return {name for name, _ in before.items() ^ self._seen.items()}

    def _snapshot(self) -> dict[str, tuple[int, int, int]]:
        found: dict[str, tuple[int, int, int]] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                if files.is_temporary(entry.name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.name] = (status.st_ino, status.st_mtime_ns, status.st_size)
        return found

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass


def wait_until(
    bead: str,
    done: Callable[[dict[str, Any] | None], bool],
    timeout: float = DEFAULT_TIMEOUT,
    interval: float = DEFAULT_INTERVAL,
    *,
    describe: Callable[[dict[str, Any] | None], str] | None = None,
    dirs: Dirs | None = None,
) -> dict[str, Any] | None:
    """Wait until ``done`` says so about a bead's bookbag (None: there is none).

    Returns:
        The record that ``done`` was content with.

    Raises:
        HandoffTimeoutError: Not in ``timeout`` seconds; the message carries ``describe`` of the last record.
        BookbagCorruptError: The bookbag can't be read.
    """
    where = dirs or Dirs.from_env()
    file = check_bead(bead) + SUFFIX
    deadline = time.monotonic() + timeout
    with Watcher(where.bookbags, interval=interval) as watcher:
        while True:
            bag = read_bookbag(bead, dirs=where)
            if done(bag):
                return bag
            look_again = min(time.monotonic() + interval, deadline)
            while (left := look_again - time.monotonic()) > 0 and file not in watcher.wait(left):
                pass  # other beads' bookbags
            if time.monotonic() >= deadline:
                bag = read_bookbag(bead, dirs=where)
                if done(bag):
                    return bag
                detail = describe(bag) if describe else ("no bookbag" if bag is None else f"state {bag.get('state')}")
                raise HandoffTimeoutError(
                    f"bead {bead}: not there after {timeout:g} s: {detail}",
                    next_step=f"school show {bead}",
                )


def wait_for_bookbag(
    bead: str,
    required_fields: Sequence[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    interval: float = DEFAULT_INTERVAL,
    *,
    dirs: Dirs | None = None,
) -> dict[str, Any]:
    """Wait until a bookbag is there with all of ``required_fields`` filled (R-48).

    Filled is anything but missing, null, "", [] and {}: false and 0 are values.

    Returns:
        The record.

    Raises:
        HandoffTimeoutError: Not in ``timeout`` seconds; names the state of each required field.
        BookbagCorruptError: The bookbag can't be read.
    """

    def done(bag: dict[str, Any] | None) -> bool:
        return bag is not None and all(_filled(bag.get(name)) for name in required_fields)

    def describe(bag: dict[str, Any] | None) -> str:
        if bag is None:
            return "no bookbag"
        return ", ".join(f"{name} {_state_of(bag, name)}" for name in required_fields)

    bag = wait_until(bead, done, timeout, interval, describe=describe, dirs=dirs)
    return bag or {}  # done() was content, so it is a record


def wait_for_verdicts(
    bead: str, timeout: float = DEFAULT_TIMEOUT, interval: float = DEFAULT_INTERVAL, *, dirs: Dirs | None = None
) -> tuple[str, str]:
    """Wait until both teachers have spoken; return their verdicts: CTO's, COO's (R-48).

    Raises:
        HandoffTimeoutError: Not in ``timeout`` seconds; names the state of each verdict.
        BookbagCorruptError: The bookbag can't be read.
    """
    bag = wait_for_bookbag(bead, [f"{teacher}_verdict" for teacher in TEACHERS], timeout, interval, dirs=dirs)
    return verdict_of(bag, "cto"), verdict_of(bag, "coo")


def _filled(value: object) -> bool:
    return value is not None and value not in ("", [], {})


def _state_of(bag: dict[str, Any], name: str) -> str:
    if name not in bag:
        return "missing"
    if not _filled(bag[name]):
        teacher = name.removesuffix("_verdict")
        attempts = bag.get(f"{teacher}_attempts") if teacher in TEACHERS else None
        if isinstance(attempts, list) and attempts:
            last = attempts[-1].get("reason", "") if isinstance(attempts[-1], dict) else ""
            return f"empty after {len(attempts)} failed attempts, the last: {str(last)[:200]}"
        return "empty"
    return str(bag[name])[:80]


def _libc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None, use_errno=True)
        _ = library.inotify_init1, library.inotify_add_watch, library.inotify_rm_watch
    except (OSError, AttributeError):  # no dynamic loader, or not Linux
        return None
    return library


_LIBRARY = _libc()


def _inotify_init() -> int | None:
    """Return an inotify descriptor, or None where there is none to be had (not Linux, the user's limit is reached)."""
    if _LIBRARY is None:
        return None
    descriptor = int(_LIBRARY.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    return None if descriptor == -1 else descriptor


def _add_watch(descriptor: int, folder: str) -> int:
    if _LIBRARY is None:
        return -1
    return int(_LIBRARY.inotify_add_watch(descriptor, os.fsencode(folder), ctypes.c_uint32(_MASK)))


def _remove_watch(descriptor: int, watch: int) -> None:
    if _LIBRARY is not None:
        _LIBRARY.inotify_rm_watch(descriptor, watch)  # fails when the kernel removed it by itself, which is as good
