"""Files that root makes in somebody's repository are made that person's (the repository must stay usable to them)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def give_back(like: Path, *paths: Path) -> None:
    """Give each path, and what lies between it and ``like``, to the owner of ``like``.

    Does nothing unless this process is root and ``like`` is not root's. Paths that are not there are passed over.
    """
    owner = _owner(like)
    if owner is None:
        return
    for path in paths:
        for one in (path, *path.parents):
            if one == like:
                break
            _chown(one, owner)


def give_tree(like: Path, top: Path) -> None:
    """Give ``top`` and everything in it to the owner of ``like``, as ``give_back`` does."""
    owner = _owner(like)
    if owner is None:
        return
    for folder, _, files in os.walk(top):
        for name in ("", *files):
            _chown(os.path.join(folder, name) if name else folder, owner)  # noqa: PTH118 - os.walk's own strings


def _owner(like: Path) -> tuple[int, int] | None:
    status = like.stat()
    return (status.st_uid, status.st_gid) if os.geteuid() == 0 and status.st_uid != 0 else None


def _chown(path: Path | str, owner: tuple[int, int]) -> None:
    if os.path.lexists(path) and os.lstat(path).st_uid != owner[0]:
        os.chown(path, *owner, follow_symlinks=False)
