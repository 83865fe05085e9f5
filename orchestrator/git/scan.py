"""Compare a stranger's tree with what the index says was handed over, in Python and without git.

Git never walks the student's tree: it reads ``.gitattributes``, nested repositories and their configuration on the
way, each of which has run a stranger's code before (FACTS). What is here reads names, status and bytes, nothing else.
The container is gone, so nothing changes underneath.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.git.index import EXECUTABLE, GITLINK, REGULAR, SYMLINK, IndexEntry, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LONGEST_PATH = 3800
"""Bytes of a path, from the top of the worktree, that git can check out anywhere (PATH_MAX less a prefix)."""

_NTFS_DOTGIT = re.compile(rb"(?:\.git|git~1)[ .]*(?:[:\\].*)?", re.IGNORECASE | re.DOTALL)
# what HFS+ leaves out of a name when it compares: zero-width marks, in UTF-8
_HFS_IGNORED = re.compile(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
# for links: .gitmodules, and every 8.3 name that it could have on Windows
_GITMODULES = re.compile(rb"(?:\.gitmodules|(?:g[a-z0-9]{0,5})?~[0-9]+)[ .]*(?:[:\\].*)?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something in the student's tree that is not, or not as it stands, in the frozen tree.

    Attributes:
        kind: ``too_large``, ``unreadable``, ``special_file``, ``unstorable_name``, ``path_too_long``,
            ``nested_repository``, ``submodule_changed``, ``history_unread``, ``unsafe_gitmodules``.
        path: From the top of the worktree; undecodable bytes as surrogates.
        detail: For a person.
        loss: Whether content of the student's is left out.
    """

    kind: str
    path: str
    detail: str
    loss: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """One path that differs: ``mode`` 0 says it is gone; ``new`` says the index does not have it."""

    path: bytes
    mode: int
    size: int
    new: bool


@dataclass(slots=True)
class Scan:
    """What a walk found."""

    changed: list[Found] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def scan_tree(
    tree: Path,
    entries: Iterable[IndexEntry],
    *,
    hash_bytes: int,
    handed_over_ns: int,
    max_file_bytes: int,
) -> Scan:
    """Walk ``tree`` and return every path that differs from ``entries``, before any ignore rule.

    A file that is too large, can't be read or can't be stored by git stays as it was in the base, with a notice.
    Submodules' own files are not looked at: they have an index of their own.
    """
    return _Walk(os.fsencode(tree), entries, hash_bytes, handed_over_ns, max_file_bytes).run()


class _Walk:
    def __init__(
        self, root: bytes, entries: Iterable[IndexEntry], hash_bytes: int, handed_over_ns: int, max_file_bytes: int
    ) -> None:
        self.root = root
        self.known = {entry.path: entry for entry in entries}
        self.algorithm = hashlib.sha256 if hash_bytes == 32 else hashlib.sha1
        self.handed_over_ns = handed_over_ns
        self.limit = max_file_bytes
        self.result = Scan()
        self.kept: set[bytes] = set()  # there, though possibly not as the student left it
        self.kept_below: list[bytes] = []

    def run(self) -> Scan:
        folders = [b""]
        while folders:
            prefix = folders.pop()
            try:
                listing = _list(self.root + b"/" + prefix)
            except OSError as error:
                self.notice("unreadable", prefix, f"The folder can't be read: {error.strerror}.")
                self.kept_below.append(prefix)
                continue
            for entry in listing:
                folder = self.visit(prefix, entry)
                if folder is not None:
                    folders.append(folder)
        below = tuple(self.kept_below)
        for path in self.known.keys() - self.kept:
            if not (below and path.startswith(below)):
                self.result.changed.append(Found(path, 0, 0, new=False))
        self.result.changed.sort(key=lambda found: found.path)
        return self.result

    def visit(self, prefix: bytes, entry: os.DirEntry[bytes]) -> bytes | None:
        """Look at one name; return the folder to walk into, if it is one."""
        path = prefix + entry.name
        if entry.name == b".git":
            if prefix:
                self.nested(prefix, entry)
            return None
        status = entry.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and (known := self.known.get(path)) is not None and known.mode == GITLINK:
            self.kept.add(path)
            return None
        if not _storable(entry.name, is_link=stat.S_ISLNK(status.st_mode)):
            self.notice("unstorable_name", path, "Git takes this name for one of its own and can't store it.")
            return None
        if len(path) > LONGEST_PATH:
            self.notice("path_too_long", path[:200], f"The path has more than {LONGEST_PATH} bytes.")
            return None
        if is_folder:
            return path + b"/"
        self.file(path, status)
        return None

    def file(self, path: bytes, status: os.stat_result) -> None:
        known = self.known.get(path)
        if stat.S_ISLNK(status.st_mode):
            mode = SYMLINK
        elif stat.S_ISREG(status.st_mode):
            mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR
        else:
            self.notice("special_file", path, f"{_kind(status.st_mode)}: git does not store it.", loss=False)
            return
        if known is not None:
            self.kept.add(path)  # whatever follows: it is there
            if known.mode == mode and known.stat == fingerprint(status) and self.settled(status):
                return
        if status.st_size > self.limit:
            self.notice("too_large", path, f"{status.st_size} bytes; at most {self.limit} are taken.")
        elif mode != SYMLINK and (reason := self.unreadable(path)):
            self.notice("unreadable", path, f"The file can't be read: {reason}.")
        elif known is None:
            self.result.changed.append(Found(path, mode, status.st_size, new=True))
        elif known.mode != mode or known.oid != self.digest(path, mode, status.st_size):
            self.result.changed.append(Found(path, mode, status.st_size, new=False))

    def settled(self, status: os.stat_result) -> bool:
        """Return whether an unchanged status proves an unchanged file.

        File times count in ticks (4 ms is common): a file last written in the very tick of the hand-over could have
        been written again in it. Git knows this as a racily clean entry.
        """
        return status.st_ctime_ns < self.handed_over_ns

    def unreadable(self, path: bytes) -> str:
        """Return why a file can't be opened, or ""."""
        try:
            os.close(open_regular(self.root + b"/" + path))
        except OSError as error:
            return error.strerror or "no reason"
        return ""

    def digest(self, path: bytes, mode: int, size: int) -> bytes:
        """Return the id that git gives this content."""
        full = self.root + b"/" + path
        summer = self.algorithm(b"blob %d\0" % size, usedforsecurity=False)
        if mode == SYMLINK:
            summer.update(os.readlink(full))  # noqa: PTH115 - bytes
            return summer.digest()
        with os.fdopen(open_regular(full), "rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                summer.update(chunk)
        return summer.digest()

    def nested(self, prefix: bytes, entry: os.DirEntry[bytes]) -> None:
        if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
            text = "A repository of its own: its files are taken as ordinary files, its history is not."
            self.notice("nested_repository", prefix.rstrip(b"/"), text)
        else:
            self.notice("unstorable_name", prefix + entry.name, "Git can't store a file of this name.")

    def notice(self, kind: str, path: bytes, detail: str, *, loss: bool = True) -> None:
        self.result.notices.append(Notice(kind, os.fsdecode(path), detail, loss))


def open_regular(path: bytes) -> int:
    """Open a regular file for reading; never a link, never a pipe that would block.

    Raises:
        OSError: it can't be opened, or is something else.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        os.chmod(path, os.lstat(path).st_mode & 0o7777 | stat.S_IRUSR)  # noqa: PTH101 - bytes; seen as no link
        descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file any more")
    return descriptor


def _list(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        os.chmod(folder, stat.S_IRWXU)  # noqa: PTH101 - bytes; seen as a folder, no link
        with os.scandir(folder) as entries:
            return list(entries)


def _storable(name: bytes, *, is_link: bool) -> bool:
    """Return whether git takes the name into a tree on every system (verify_path with both protections on)."""
    if not (name[:1] in b".gG~\xe2\xef" or b"\\" in name):
        return True
    plain = _HFS_IGNORED.sub(b"", name)
    parts = (name, *name.split(b"\\"))  # a backslash is a separator on Windows
    if plain.lower() == b".git" or any(_NTFS_DOTGIT.fullmatch(part) for part in parts):
        return False
    return not (is_link and (plain.lower() == b".gitmodules" or any(_GITMODULES.fullmatch(part) for part in parts)))


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "A named pipe"
    if stat.S_ISSOCK(mode):
        return "A socket"
    return "A device"
