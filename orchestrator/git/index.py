"""Read git's index file, and correct the file times in it (gitformat-index, version 2).

The index that the host's checkout wrote is the list of what the student was given: path, mode, content id and the
file's times. Reading it here costs a millisecond and saves a git process at both ends; correcting it after a change
of owner saves the student's first ``git status`` from reading every file again.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import GitError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GITLINK = 0o160000
SYMLINK = 0o120000
EXECUTABLE = 0o100755
REGULAR = 0o100644

OPTIONS = ("index.version=2", "index.sparse=false", "core.splitIndex=false", "core.untrackedCache=false")
"""Settings under which git writes an index that this module reads."""

_STAT = struct.Struct(">10I")
_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One path of the index. ``stat`` is ``fingerprint()`` of the file when it was written."""

    path: bytes
    mode: int
    oid: bytes
    stat: tuple[int, ...]
    offset: int


def fingerprint(status: os.stat_result) -> tuple[int, ...]:
    """Return what a file's status looks like in the index: change, modification, inode, owner, size; 32 bits each."""
    c_sec, c_nsec = divmod(status.st_ctime_ns, 1_000_000_000)
    m_sec, m_nsec = divmod(status.st_mtime_ns, 1_000_000_000)
    return (
        c_sec & _LOW,
        c_nsec,
        m_sec & _LOW,
        m_nsec,
        status.st_ino & _LOW,
        status.st_uid & _LOW,
        status.st_gid & _LOW,
        status.st_size & _LOW,
    )


def read_index(data: bytes | bytearray, hash_bytes: int) -> list[IndexEntry]:
    """Return the entries of an index in git's order.

    Raises:
        GitError: not an index of version 2 or 3.
    """
    if data[:4] != b"DIRC" or len(data) < 12:
        raise GitError("The workspace's index is not a git index.")
    version, count = struct.unpack_from(">2I", data, 4)
    if version not in {2, 3}:
        raise GitError(f"The workspace's index has version {version}; 2 or 3 was asked for.")
    entries = []
    offset = 12
    for _ in range(count):
        c_sec, c_nsec, m_sec, m_nsec, _dev, ino, mode, uid, gid, size = _STAT.unpack_from(data, offset)
        name = offset + 40 + hash_bytes + 2
        if data[name - 2] & 0x40:  # two more bytes of flags (version 3)
            name += 2
        end = data.index(b"\0", name)
        entries.append(
            IndexEntry(
                bytes(data[name:end]),
                mode,
                bytes(data[offset + 40 : offset + 40 + hash_bytes]),
                (c_sec, c_nsec, m_sec, m_nsec, ino, uid, gid, size),
                offset,
            )
        )
        offset += (end - offset + 8) & ~7
    return entries


def hand_over(
    index: Path, tree: Path, hash_bytes: int, owner: tuple[int, int], entries: Iterable[IndexEntry] | None = None
) -> None:
    """Give every checked-out file and folder to ``owner`` and write the new change times into the index.

    Args:
        index: The index file; replaced.
        tree: The work tree that it describes.
        hash_bytes: Length of an object id.
        owner: uid and gid.
        entries: What ``read_index`` found in the file, where that is known already.
    """
    data = bytearray(index.read_bytes())
    uid, gid = owner
    folders = {b"."}
    root = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for entry in read_index(data, hash_bytes) if entries is None else entries:
            folder = entry.path if entry.mode == GITLINK else entry.path.rpartition(b"/")[0]
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition(b"/")[0]
            if entry.mode == GITLINK:
                continue
            os.chown(entry.path, uid, gid, dir_fd=root, follow_symlinks=False)
            status = os.stat(entry.path, dir_fd=root, follow_symlinks=False)
            c_sec, c_nsec, m_sec, m_nsec, ino, *owners, size = fingerprint(status)
            fields = (c_sec, c_nsec, m_sec, m_nsec, status.st_dev & _LOW, ino, entry.mode, *owners, size)
            _STAT.pack_into(data, entry.offset, *fields)
        for folder in folders:
            os.chown(folder, uid, gid, dir_fd=root, follow_symlinks=False)
    finally:
        os.close(root)
    algorithm = hashlib.sha256 if hash_bytes == 32 else hashlib.sha1
    data[-hash_bytes:] = algorithm(data[:-hash_bytes]).digest()
    index.write_bytes(data)
