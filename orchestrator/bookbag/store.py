"""The bookbag store: one JSON file a bead, replaced whole (R-1, R-3, R-9).

The store keeps, it does not judge: what a record must look like is ``validate.py``'s to say. Nothing here takes a
lock; a read-modify-write that others may race with goes through ``lock.py``.
"""

from __future__ import annotations

import json
import os

from orchestrator.bookbag import files
from orchestrator.bookbag.bead import check_bead, is_bead
from orchestrator.bookbag.dirs import Dirs
from orchestrator.bookbag.record import new_bookbag
from orchestrator.errors import BookbagCorruptError, BookbagError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_BOOKBAG_BYTES = 8 * 1024 * 1024
"""Longest bookbag that is written or read; a submission is much smaller (``submission.MAX_BYTES``)."""

SUFFIX = ".json"


def encode(bag: Mapping[str, Any]) -> bytes:
    """Return a record as JSON text, indented for people.

    Raises:
        BookbagError: It holds something that JSON does not know (NaN among them), or is too long.
    """
    try:
        text = json.dumps(bag, indent=1, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BookbagError(f"bookbag {bag.get('bead')!r} can't be written as JSON: {error}") from error
    if len(text) >= MAX_BOOKBAG_BYTES:
        raise BookbagError(f"bookbag {bag.get('bead')!r} has {len(text)} bytes; the limit is {MAX_BOOKBAG_BYTES}")
    return text.encode("ascii") + b"\n"


def decode(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in ``data``.

    Raises:
        BookbagCorruptError: There is none, or it holds a number that JSON does not know.
    """

    def refuse(token: str) -> float:
        raise ValueError(f"{token} is not a JSON number")

    def finite(token: str) -> float:
        number = float(token)
        return number if abs(number) != float("inf") else refuse(token)  # written back it would not be JSON

    try:
        bag = json.loads(data.decode("utf-8"), parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise BookbagCorruptError(f"{where} is not JSON: {error}") from error
    if not isinstance(bag, dict):
        raise BookbagCorruptError(f"{where} holds a JSON {type(bag).__name__}, not an object")
    return bag


def read_bookbag(bead: str, *, dirs: Dirs | None = None) -> dict[str, Any] | None:
    """Return a bead's record, or None when there is no file (R-3).

    Raises:
        BookbagCorruptError: The file is there and holds no record of this bead.
        InvalidBeadError: ``bead`` is outside the grammar (R-6).
    """
    folder = (dirs or Dirs.from_env()).bookbags
    name = check_bead(bead) + SUFFIX
    data = files.read_file(folder, name, limit=MAX_BOOKBAG_BYTES)
    if data is None:
        return None
    bag = decode(data, f"{folder}/{name}")
    if bag.get("bead") != bead:
        raise BookbagCorruptError(f"{folder}/{name} holds the bookbag of {str(bag.get('bead'))[:80]!r}")
    return bag


def write_bookbag(
    bead: str, fields: Mapping[str, Any] | None = None, /, *, dirs: Dirs | None = None, **more: Any
) -> dict[str, Any]:
    """Write a whole record; what is not given is at its default. An existing file keeps its timestamp (R-3).

    Args:
        bead: The bead.
        fields: Field values; the way to pass names that are not identifiers, or one called ``dirs``.
        dirs: The folders; from the environment by default.
        **more: Field values.

    Returns:
        The record as written.

    Raises:
        BookbagError: ``fields`` name another bead, or can't be written as JSON.
        BookbagCorruptError: A corrupt file is in the way; it is not overwritten.
        InvalidBeadError: ``bead`` is outside the grammar (R-6).
    """
    where = dirs or Dirs.from_env()
    given = {**(fields or {}), **more}
    if given.get("bead", bead) != bead:
        raise BookbagError(f"the fields are those of bead {str(given['bead'])[:80]!r}, not of {bead!r}")
    bag = new_bookbag(bead, given)
    before = read_bookbag(bead, dirs=where)
    if before is not None and isinstance(before.get("timestamp"), str):
        bag["timestamp"] = before["timestamp"] or bag["timestamp"]
    files.replace_file(where.bookbags, bead + SUFFIX, encode(bag))
    return bag


def update_bookbag(
    bead: str, fields: Mapping[str, Any] | None = None, /, *, dirs: Dirs | None = None, **more: Any
) -> dict[str, Any] | None:
    """Read, change the given fields, write. Without a lock: see ``lock.locked_update_bookbag``.

    Returns:
        The record as written, or None when there is no bookbag.

    Raises:
        BookbagError: As ``write_bookbag`` and ``read_bookbag``.
    """
    where = dirs or Dirs.from_env()
    bag = read_bookbag(bead, dirs=where)
    if bag is None:
        return None
    return write_bookbag(bead, {**bag, **(fields or {}), **more}, dirs=where)


def list_bookbags(*, dirs: Dirs | None = None) -> list[str]:
    """Return the beads that have a bookbag, sorted; files that can't be one are left out."""
    return [bead for bead in files.names_in((dirs or Dirs.from_env()).bookbags, SUFFIX) if is_bead(bead)]


def archive_bookbag(bead: str, archive_dir: str | os.PathLike[str], *, dirs: Dirs | None = None) -> str | None:
    """Move a bookbag into the archive, across file systems too (R-9). Corrupt files are archived as they are.

    Written there first, removed here second: a crash in between leaves both, and the next call ends the move. An
    older, different bookbag of the same bead stays in the archive as ``<bead>~<n>.json``.

    Returns:
        Path of the archived file, or None when neither place has it.

    Raises:
        BookbagCorruptError: What lies in the bookbag's place is not a regular file.
        InvalidBeadError: ``bead`` is outside the grammar (R-6).
    """
    folder = (dirs or Dirs.from_env()).bookbags
    name = check_bead(bead) + SUFFIX
    archive = os.fspath(archive_dir)
    target = f"{archive}/{name}"
    data = files.read_file(folder, name, limit=MAX_BOOKBAG_BYTES)
    kept = files.read_file(archive, name, limit=MAX_BOOKBAG_BYTES)
    if data is None:
        return None if kept is None else target
    if kept is not None and kept != data:
        number = 2
        while files.read_file(archive, f"{bead}~{number}{SUFFIX}", limit=MAX_BOOKBAG_BYTES) is not None:
            number += 1
        files.replace_file(archive, f"{bead}~{number}{SUFFIX}", kept)
    if kept != data:
        files.replace_file(archive, name, data)
    files.remove_file(folder, name)
    return target
