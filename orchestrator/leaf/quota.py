"""The disk quota of a leaf, watched from outside: nothing inside can switch it off.

A bind mount has no quota of its own on most file systems (1 GB written into a worktree passed a memory limit of
64 MB), so a thread looks at the free space of the slot's file system and walks the slot when that fell.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MAX_FILES = 1_000_000
"""Files in a leaf's writable folders; an inode bomb is a disk bomb."""


LONGEST_PATH = 1 << 16
"""Bytes of a path below a leaf's folder; nobody needs a deeper one, and what can't be walked can't be counted."""

_HOP = 2000  # bytes of a path that are opened at once: the kernel takes 4096
_Place = tuple["_Place | None", bytes, int]  # parent, name, bytes of the path


def usage(folders: Sequence[Path]) -> tuple[int, int]:
    """Return (bytes allocated, entries) below the folders; links are not followed, races are fine.

    A student may go deeper than a path can be long, and swap a folder for a link while this looks: folders are opened
    in hops, and what turns out to lie elsewhere is not walked. A tree that is too deep counts as too many entries.
    """
    total = entries = 0
    for folder in folders:
        root = os.path.realpath(os.fsencode(folder))
        stack: list[_Place] = [(None, b"", 0)]
        while stack:
            place = stack.pop()
            if place[2] > LONGEST_PATH:
                return total, entries + 2 * MAX_FILES
            try:
                descriptor = _open_below(root, _path(place))
            except OSError:
                continue
            try:
                with os.scandir(descriptor) as iterator:
                    for entry in iterator:
                        entries += 1
                        try:
                            status = entry.stat(follow_symlinks=False)
                            is_folder = entry.is_dir(follow_symlinks=False)
                        except OSError:
                            continue
                        total += status.st_blocks * 512
                        if is_folder:
                            name = os.fsencode(entry.name)
                            stack.append((place, name, place[2] + len(name) + 1))
            except OSError:
                continue
            finally:
                os.close(descriptor)
            if entries > 2 * MAX_FILES:
                return total, entries
    return total, entries


def _path(place: _Place) -> list[bytes]:
    names = []
    at: _Place | None = place
    while at is not None and at[1]:
        names.append(at[1])
        at = at[0]
    return names[::-1]


def _open_below(root: bytes, names: Sequence[bytes]) -> int:
    """Open a folder by its names below ``root``, however long they are together.

    Raises:
        OSError: it is not there any more, or leads somewhere else.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(root, flags)
    try:
        hop: list[bytes] = []
        for number, name in enumerate(names, 1):
            hop.append(name)
            if sum(map(len, hop)) + len(hop) > _HOP or number == len(names):
                inner = os.open(b"/".join(hop), flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor, hop = inner, []
        real = root
        with contextlib.suppress(OSError):  # of a path that is too long to be told
            real = os.readlink(b"/proc/self/fd/%d" % descriptor)  # noqa: PTH115 - bytes
        if real != root and not real.startswith(root + b"/"):
            raise NotADirectoryError(errno.ENOTDIR, "leads out of its folder")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class QuotaWatcher:
    """Calls ``on_exceeded(reason)`` once when the folders grow by more than ``limit`` bytes."""

    def __init__(
        self,
        folders: Sequence[Path],
        limit: int,
        on_exceeded: Callable[[str], None],
        *,
        interval: float = 0.5,
        max_files: int = MAX_FILES,
    ) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._max_files = max_files
        self._on_exceeded = on_exceeded
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="quota", daemon=True)

    def start(self) -> None:
        """Begin to watch; the first reading is the baseline."""
        self._free = self._free_bytes()
        self._files_free = self._free_files()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def _free_bytes(self) -> int:
        status = os.statvfs(self._folders[0])
        return status.f_bavail * status.f_frsize

    def _free_files(self) -> int:
        return os.statvfs(self._folders[0]).f_favail

    def _watch(self) -> None:
        # The baseline walk happens beside the start-up, not before it: a leaf's first file takes longer than the walk.
        started = time.monotonic()
        base_bytes, base_files = usage(self._folders)
        step = max(self._limit // 8, 1 << 20)
        file_step = max(self._max_files // 8, 1)
        next_walk = time.monotonic() + self._pause(time.monotonic() - started)
        while not self._stop.wait(self._interval):
            free, files_free = self._free_bytes(), self._free_files()
            lost = self._free - free >= step or self._files_free - files_free >= file_step
            # Others free space on this file system too, which hides what the leaf takes: walk now and then anyway.
            if not lost and time.monotonic() < next_walk:
                continue
            started = time.monotonic()
            used, files = usage(self._folders)
            next_walk = time.monotonic() + self._pause(time.monotonic() - started)
            if used - base_bytes > self._limit:
                self._on_exceeded(
                    f"the disk limit was exceeded: {used - base_bytes} bytes added, {self._limit} allowed"
                )
                return
            if files - base_files > self._max_files:
                self._on_exceeded(f"the file limit was exceeded: {files - base_files} added, {self._max_files} allowed")
                return
            self._free, self._files_free = free, files_free

    @staticmethod
    def _pause(walk: float) -> float:
        """Seconds until the next walk that nothing asked for: at most a twentieth of the time goes into walking."""
        return max(3.0, 20 * walk)
