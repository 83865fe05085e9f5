"""Delete a tree that a stranger made: folders nobody may enter, links, nesting beyond any path length, a million files.

Everything is addressed by file descriptor and never through a link. At most ``_DEPTH`` folders are open at a time: what
lies deeper is first moved up to the top. ``shutil.rmtree`` gives up at each of these.
"""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import count, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEPTH = 64
_BATCH = 4096  # names held in memory at a time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Delete ``path`` and everything in it; not there: nothing happens.

    Raises:
        OSError: something in it can't be deleted (another user's file, a mount, a read-only file system).
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108 - Path.unlink is the same call
            return
        with _opened(os.fspath(path), None) as top:
            names = count()
            while _clear(top, top, 0, names):
                pass
        os.rmdir(path)  # noqa: PTH106


def _clear(folder: int, top: int, depth: int, names: Iterator[int]) -> bool:
    """Empty one folder; return whether it had anything in it. What is too deep lands in ``top``."""
    seen = False
    while batch := _some_entries(folder):
        seen = True
        for name, is_folder in batch:
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif depth >= _DEPTH:
                _move_up(name, folder, top, names)
            else:
                with _opened(name, folder) as child:
                    _clear(child, top, depth + 1, names)
                os.rmdir(name, dir_fd=folder)
    return seen


def _some_entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _BATCH)]


def _move_up(name: str, folder: int, top: int, names: Iterator[int]) -> None:
    with contextlib.suppress(PermissionError), _opened(name, folder):
        pass  # moving a folder writes its "..", so it must be writable: opening it sees to that
    while True:
        new = f".removing-{os.getpid()}-{next(names)}"
        try:
            os.stat(new, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
            return


@contextlib.contextmanager
def _opened(name: str, parent: int | None) -> Iterator[int]:
    """Open a folder for emptying, giving its owner the right to do so where that is missing."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)  # a folder, no link
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    try:
        mode = os.fstat(descriptor).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(descriptor, stat.S_IRWXU)
        yield descriptor
    finally:
        os.close(descriptor)
