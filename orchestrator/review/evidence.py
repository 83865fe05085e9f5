"""Reads what the principal laid out for the teachers about one bead, and trusts none of it further than its digest.

The folder holds ``evidence.json`` and the parts it lists. The principal wrote the files; what is in them came from a
student and a repository. So: every file is opened from a folder descriptor without following links, must be a
regular file within a size limit, and must have the digest that the index says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orchestrator.errors import ReviewError
from orchestrator.review.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX_FILE: Final = "evidence.json"
INDEX_LIMIT: Final = 4 << 20  # bytes
PART_LIMIT: Final = 8 << 20  # bytes, one part
PARTS_LIMIT: Final = 64 << 20  # bytes, all parts together
PART_COUNT_LIMIT: Final = 4000

DIFF: Final = "diff.patch"
LOG: Final = "verification.log"
_PART_NAME: Final = re.compile(r"diff\.patch|verification\.log|(?:files|neighbours)/[0-9]{1,6}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BEAD: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of evidence.

    ``path`` is the path in the repository, ``truncated`` whether the writer cut it. In ``text`` hidden characters are
    written out already, so that its length is what a model reads; ``hidden`` says which there were and how often.
    """

    name: str
    path: str
    text: str
    truncated: bool = False
    hidden: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed path, as git sees it."""

    path: str
    status: str
    additions: int | None
    deletions: int | None
    binary: bool


@dataclass(frozen=True, slots=True)
class Student:
    """What the student says of its own work. A claim, not evidence."""

    output: str = ""
    summary: str = ""
    messages: tuple[str, ...] = ()
    agent: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """The repository's own check, run by the principal in a clean container.

    ``scope`` says, a line each, what of the change has a say in the check.
    """

    status: str = "not_configured"
    command: str = ""
    exit_code: int | None = None
    baseline: str = ""
    scope: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a teacher may read about one bead. ``digest`` is the SHA-256 of the index's bytes."""

    bead: str
    head_sha: str
    base_sha: str
    role: str
    difficulty: str
    task: str
    digest: str
    domain: str = ""
    repo: str = ""
    expected_output_format: str = ""
    instructions: str = ""
    files: tuple[ChangedFile, ...] = ()
    student: Student = field(default_factory=Student)
    verification: Verification = field(default_factory=Verification)
    parts: tuple[Part, ...] = ()
    cut: tuple[str, ...] = ()


def read_evidence(root: str | Path, bead: str) -> Evidence:
    """Read ``<root>/<bead>/``.

    Raises:
        ReviewError: the folder or a file is missing, not regular, too large, not what its digest says, not of the
            agreed form, or about another bead.
    """
    if not _BEAD.fullmatch(bead) or ".." in bead:
        raise ReviewError(f"Not a bead id: {bead[:80]!r}.")
    with _folder(Path(root), None) as base, _folder(Path(bead), base) as folder:
        raw = _read(folder, INDEX_FILE, INDEX_LIMIT)
        index = _index(raw)
        if index.get("bead") != bead:
            raise ReviewError(f"The evidence of {bead} is about another bead: {str(index.get('bead'))[:80]!r}.")
        parts = tuple(_parts(folder, index))
    return _evidence(index, parts, hashlib.sha256(raw).hexdigest())


def _index(raw: bytes) -> dict[str, Any]:
    try:
        index = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ReviewError(f"{INDEX_FILE} is not JSON: {error!s:.200}") from None
    if not isinstance(index, dict) or index.get("v") != 1:
        raise ReviewError(f"{INDEX_FILE} is not an index of version 1.")
    return index


def _evidence(index: dict[str, Any], parts: tuple[Part, ...], digest: str) -> Evidence:
    student = _get(index, "student", dict, {})
    verification = _get(index, "verification", dict, {})
    files = tuple(_changed(entry) for entry in _get(index, "files", list, []))
    return Evidence(
        bead=_get(index, "bead", str),
        head_sha=_get(index, "head_sha", str),
        base_sha=_get(index, "base_sha", str),
        role=_get(index, "role", str),
        difficulty=_get(index, "difficulty", str),
        task=_get(index, "task", str, ""),
        digest=digest,
        domain=_get(index, "domain", str, ""),
        repo=_get(index, "repo", str, ""),
        expected_output_format=_get(index, "expected_output_format", str, ""),
        instructions=_get(index, "instructions", str, ""),
        files=files,
        student=Student(
            output=_get(student, "output", str, ""),
            summary=_get(student, "summary", str, ""),
            messages=_strings(student, "messages"),
            agent=_get(student, "agent", str, ""),
            status=_get(student, "status", str, ""),
        ),
        verification=Verification(
            status=_get(verification, "status", str, "not_configured"),
            command=_get(verification, "command", str, ""),
            exit_code=_get(verification, "exit_code", int, None),
            baseline=_baseline(verification.get("baseline")),
            scope=_strings(verification, "scope"),
        ),
        parts=parts,
        cut=_strings(index, "cut"),
    )


def _changed(entry: object) -> ChangedFile:
    if not isinstance(entry, dict):
        raise ReviewError(f"{INDEX_FILE}: an entry of files is not an object.")
    return ChangedFile(
        path=_get(entry, "path", str),
        status=_get(entry, "status", str, ""),
        additions=_get(entry, "additions", int, None),
        deletions=_get(entry, "deletions", int, None),
        binary=_get(entry, "binary", bool, False),
    )


def _baseline(value: object) -> str:
    """Return the check's result on base_sha as text; it may be a word or an object with a status."""
    if isinstance(value, dict):
        value = value.get("status")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ReviewError(f"{INDEX_FILE}: verification.baseline is not a text.")
    return value


def _get(source: dict[str, Any], key: str, kind: type[T], default: Any = ...) -> Any:
    """Return ``source[key]``; null and absent give the default.

    Raises:
        ReviewError: another type than ``kind``, or no value and no default.
    """
    value = source.get(key)
    if value is None:
        if default is ...:
            raise ReviewError(f"{INDEX_FILE}: {key} is missing.")
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ReviewError(f"{INDEX_FILE}: {key} is not of type {kind.__name__}.")
    return value


def _strings(source: dict[str, Any], key: str) -> tuple[str, ...]:
    values = _get(source, key, list, [])
    if not all(isinstance(value, str) for value in values):
        raise ReviewError(f"{INDEX_FILE}: {key} holds something that is not a text.")
    return tuple(values)


def _parts(folder: int, index: dict[str, Any]) -> Iterator[Part]:
    entries = _get(index, "parts", list, [])
    if len(entries) > PART_COUNT_LIMIT:
        raise ReviewError(f"{INDEX_FILE} lists {len(entries)} parts; the limit is {PART_COUNT_LIMIT}.")
    seen: set[str] = set()
    total = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise ReviewError(f"{INDEX_FILE}: an entry of parts is not an object.")
        name = _get(entry, "name", str)
        if not _PART_NAME.fullmatch(name) or name in seen:
            raise ReviewError(f"{INDEX_FILE}: a part is named {name[:80]!r}.")
        seen.add(name)
        raw = _part_bytes(folder, name)
        total += len(raw)
        if total > PARTS_LIMIT:
            raise ReviewError(f"The evidence is larger than {PARTS_LIMIT} bytes.")
        expected = _get(entry, "sha256", str)
        if not _SHA256.fullmatch(expected) or hashlib.sha256(raw).hexdigest() != expected:
            raise ReviewError(f"The part {name} is not what the index says: its SHA-256 differs.")
        text, hidden = visible(raw.decode("utf-8", errors="replace"))
        yield Part(
            name=name,
            path=_get(entry, "path", str, ""),
            text=text,
            truncated=_get(entry, "truncated", bool, False),
            hidden=tuple(sorted(hidden.items())),
        )


def _part_bytes(folder: int, name: str) -> bytes:
    where, _, file = name.rpartition("/")
    if not where:
        return _read(folder, file, PART_LIMIT)
    with _folder(Path(where), folder) as inner:
        return _read(inner, file, PART_LIMIT)


@contextlib.contextmanager
def _folder(path: Path, parent: int | None) -> Iterator[int]:
    """Open a folder. Only the root itself may be a link: it is the principal's own setting."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=parent)
    except OSError as error:
        raise ReviewError(f"The evidence folder {path} can't be opened: {error.strerror}.") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(folder: int, name: str, limit: int) -> bytes:
    # O_NONBLOCK: opening a FIFO that was put there must not hang
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise ReviewError(f"The evidence file {name} can't be opened: {error.strerror}.") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ReviewError(f"The evidence file {name} is not a regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise ReviewError(f"The evidence file {name} can't be read: {error.strerror}.") from None
    finally:
        os.close(descriptor)
    if len(raw) > limit:
        raise ReviewError(f"The evidence file {name} is larger than {limit} bytes.")
    return raw
