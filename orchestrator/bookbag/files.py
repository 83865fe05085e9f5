"""Small files in shared folders: replaced whole, read with care.

Two things hold for every file of the contract. A reader sees the old content or the new one, never a part (R-3):
written to a temporary file in the same folder, synced, renamed, folder synced. And the folder decides who owns
a file: the principal may be root while the teachers are not, so what root makes is given to the folder's owner
*before* it gets its name; there is no moment in which a teacher finds a file it may not open.
"""

from __future__ import annotations

import os
import stat
import time

from orchestrator.errors import BookbagCorruptError

FOLDER_MODE = 0o700
FILE_MODE = 0o600

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# a reader neither follows a link nor hangs at a pipe that someone put in the place of a file
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_temporary(name: str) -> bool:
    """Whether a file name is one of our unfinished files (or any other hidden file): no bead starts with a dot."""
    return name.startswith(".")


def open_folder(path: str) -> int:
    """Return a descriptor of the folder, which is made (0700) when it is missing. The caller closes it."""
    try:
        return os.open(path, _FOLDER)
    except FileNotFoundError:
        os.makedirs(path, FOLDER_MODE, exist_ok=True)  # noqa: PTH103 - pathlib costs a leaf 14 ms
        return os.open(path, _FOLDER)


def make_temporary(folder: int, stem: str) -> tuple[str, int]:
    """Make an empty, hidden file 0600 that belongs to the folder's owner; return its name and a descriptor."""
    name = f".{stem}.{os.urandom(6).hex()}.tmp"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE, dir_fd=folder)
    try:
        owner = os.fstat(folder)
        if os.geteuid() == 0 and (owner.st_uid, owner.st_gid) != (0, 0):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except OSError:
        os.close(descriptor)
        os.unlink(name, dir_fd=folder)
        raise
    return name, descriptor


def replace_file(path: str, name: str, data: bytes, *, durable: bool = True) -> None:
    """Put ``data`` at ``path/name`` in one step (R-3).

    Args:
        path: The folder; made when it is missing.
        name: File name inside it.
        data: The whole new content.
        durable: Sync the file and the folder, so that the content survives a power cut.

    Raises:
        OSError: For example a full disk. The old content is then still in place, and nothing else is left.
    """
    folder = open_folder(path)
    try:
        temporary, descriptor = make_temporary(folder, name)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        if durable:
            os.fsync(folder)
    finally:
        os.close(folder)


def read_file(path: str, name: str, *, limit: int) -> bytes | None:
    """Return the content of ``path/name``, or None when it (or the folder) does not exist.

    Raises:
        BookbagCorruptError: It is not a regular file (a link, a pipe, a folder), or longer than ``limit`` bytes.
        PermissionError: This user may not read it.
    """
    full = f"{path}/{name}"
    try:
        descriptor = os.open(full, READ_FLAGS)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:  # ELOOP: a link; ENXIO: a socket; ENOTDIR: the folder is none
        raise BookbagCorruptError(f"{full} can't be opened as a regular file: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BookbagCorruptError(f"{full} is not a regular file", next_step=f"look at it and remove it: {full}")
        if status.st_size > limit:
            raise BookbagCorruptError(f"{full} has {status.st_size} bytes; the limit is {limit}")
        chunks = []
        size = 0
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:  # it grew while it was read
                raise BookbagCorruptError(f"{full} is longer than {limit} bytes")
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def remove_file(path: str, name: str) -> bool:
    """Remove ``path/name``; return whether it was there."""
    try:
        os.unlink(f"{path}/{name}")  # noqa: PTH108 - pathlib costs a leaf 14 ms
    except FileNotFoundError:
        return False
    return True


def names_in(path: str, suffix: str) -> list[str]:
    """Return the names in a folder that end in ``suffix``, without it, sorted; hidden files are left out."""
    try:
        found = os.listdir(path)  # noqa: PTH208 - pathlib costs a leaf 14 ms
    except FileNotFoundError:
        return []
    return sorted(name.removesuffix(suffix) for name in found if name.endswith(suffix) and not is_temporary(name))


def remove_leftovers(path: str, *, older_than: float = 3600.0) -> int:
    """Remove temporary files of writers that were killed in the middle; return how many there were.

    Args:
        path: A folder of bookbags, signals or locks.
        older_than: Age in seconds below which a file may still have a living writer.
    """
    removed = 0
    try:
        found = os.listdir(path)  # noqa: PTH208 - see above
    except FileNotFoundError:
        return 0
    for name in found:
        if not (is_temporary(name) and name.endswith(".tmp")):
            continue
        try:
            if time.time() - os.lstat(f"{path}/{name}").st_mtime > older_than:
                removed += remove_file(path, name)
        except FileNotFoundError:
            continue  # its writer finished after all
    return removed
