"""The messages of the student's own commits, read from its git dir as from any stranger's: by name and with limits.

Git is not let near that folder: its configuration, alternates and packs are the student's. A commit made by an
ordinary ``git commit`` is a loose object, and that is what is read; nothing else is needed for a message.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_COMMITS = 100
MOST_CHARACTERS = 2_000
MOST_TOTAL = 16_000
_LARGEST_OBJECT = 256 * 1024
_LARGEST_REF_FILE = 8 << 20
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(rb"refs/heads/(?!\.)[^\0-\x20\x7f~^:?*\[\\]{1,200}")


def student_messages(git_dir: Path, base_sha: str) -> tuple[tuple[str, ...], bool]:
    """Return the messages between ``base_sha`` and the student's HEAD, oldest first, cleaned and clipped.

    Returns:
        The messages, and whether the walk reached ``base_sha`` (False: some could not be read, or are too many).
    """
    hash_bytes = len(base_sha) // 2
    top = _open_folder(git_dir)
    if top is None:
        return (), False
    try:
        oid = _head(top, hash_bytes)
        found: list[str] = []
        while oid is not None and oid != base_sha and len(found) < MOST_COMMITS:
            commit = _commit(top, oid, hash_bytes)
            if commit is None:
                break
            parent, message = commit
            found.append(clean(message))
            oid = parent
        return tuple(reversed([message for message in found if message])), oid == base_sha
    finally:
        os.close(top)


def clean(text: str, limit: int = MOST_CHARACTERS) -> str:
    """Return a stranger's text without control and formatting characters, clipped."""
    kept = "".join(c if c == "\n" or c.isprintable() else " " for c in text.replace("\r\n", "\n")).strip()
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def commit_text(message: str, messages: Sequence[str]) -> str:
    """Return the frozen commit's text: ours, then the student's, indented, so that none of it reads as a trailer."""
    text = message.strip() + "\n"
    if not messages:
        return text
    text += "\nThe student's own commits:\n"
    left = MOST_TOTAL
    for number, one in enumerate(messages):
        left -= len(one)
        if left < 0:
            return text + f"\n    ({len(messages) - number} more)\n"
        text += "\n" + "".join(f"    {line}\n" if line else "\n" for line in one.splitlines())
    return text


def _head(top: int, hash_bytes: int) -> str | None:
    head = (_read(top, (b"HEAD",), 1024) or b"").strip()
    if head.startswith(b"ref: "):
        name = head[5:].strip()
        if not _REF.fullmatch(name) or b".." in name or b"//" in name:
            return None
        head = (_read(top, tuple(name.split(b"/")), 1024) or _packed(top, name)).strip()
    return head.decode() if _OID.fullmatch(head) and len(head) == 2 * hash_bytes else None


def _packed(top: int, name: bytes) -> bytes:
    for line in (_read(top, (b"packed-refs",), _LARGEST_REF_FILE) or b"").splitlines():
        oid, _, ref = line.partition(b" ")
        if ref == name:
            return oid
    return b""


def _commit(top: int, oid: str, hash_bytes: int) -> tuple[str | None, str] | None:
    """Return first parent and message of a loose commit object whose bytes have the id they are named by."""
    packed = _read(top, (b"objects", oid[:2].encode(), oid[2:].encode()), _LARGEST_OBJECT)
    if packed is None:
        return None
    try:
        data = zlib.decompressobj().decompress(packed, _LARGEST_OBJECT)
    except zlib.error:
        return None
    algorithm = hashlib.sha256 if hash_bytes == 32 else hashlib.sha1
    if algorithm(data, usedforsecurity=False).hexdigest() != oid or not data.startswith(b"commit "):
        return None
    headers, _, message = data.partition(b"\0")[2].partition(b"\n\n")
    parents = [line[7:].decode("ascii", "replace") for line in headers.split(b"\n") if line.startswith(b"parent ")]
    parent = parents[0] if parents and _OID.fullmatch(parents[0].encode()) else None
    return parent, message.decode("utf-8", "replace")


def _open_folder(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _read(top: int, parts: Sequence[bytes], limit: int) -> bytes | None:
    """Return a regular file of at most ``limit`` bytes; no part of its path may be a link."""
    descriptor = os.dup(top)
    try:
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_NONBLOCK if last else os.O_DIRECTORY)
            following = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = following
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)
