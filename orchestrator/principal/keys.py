"""The judges' seal keys: which ones count, and how they are changed without making old records worthless.

A key in force seals new reviews. A retired one, kept in ``keys/retired/``, only proves old ones. A key that somebody
else may have is not retired but forgotten: whoever holds it could date a forgery back to when it counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import bookbag
from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, Gone
from orchestrator.errors import ConfigError, SandboxError, UsageError
from orchestrator.review.record import read_seal_key
from orchestrator.sandbox import parts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.engine.base import Engine
    from orchestrator.home import Home


@dataclass(frozen=True, slots=True)
class SealKey:
    """One key, by its public name (12 hex digits of its SHA-256)."""

    teacher: str
    key_id: str
    retired: bool


def in_force(home: Home, teacher: str) -> Path:
    """Return the file of the key that a judge seals with."""
    return home.keys / f"seal-{teacher}.key"


def counting(home: Home, teacher: str) -> dict[str, bytes]:
    """Return every key that proves a judge's records, by its name: the one in force and the retired ones.

    Raises:
        ConfigError: a file holds no key.
    """
    files = [in_force(home, teacher), *_retired(home, teacher)]
    return {bookbag.key_id(key): key for key in map(read_seal_key, files)}


def counting_keys(home: Home) -> Mapping[str, Mapping[str, bytes]]:
    """Return ``counting`` for each judge.

    Raises:
        ConfigError: a file holds no key.
    """
    return {teacher: counting(home, teacher) for teacher in parts.TEACHERS}


def listed(home: Home) -> list[SealKey]:
    """Return all keys, those in force first.

    Raises:
        ConfigError: a file holds no key.
    """
    found = []
    for teacher in parts.TEACHERS:
        if in_force(home, teacher).exists():
            found.append(SealKey(teacher, bookbag.key_id(read_seal_key(in_force(home, teacher))), retired=False))
        found += [
            SealKey(teacher, bookbag.key_id(read_seal_key(path)), retired=True) for path in _retired(home, teacher)
        ]
    return found


def rotate(home: Home, engine: Engine | None, *, open_beads: list[str], forget: bool = False) -> list[SealKey]:
    """Give each judge a new key; return what is there afterwards. The judges are removed: they hold the old ones.

    Args:
        home: Whose keys.
        engine: Where the judges run; None when no engine is reachable.
        open_beads: Beads that are not done: their verdicts would be lost.
        forget: Don't keep the old keys: records that they sealed can't be verified any more.

    Raises:
        UsageError: beads are open, or there are no keys yet.
        SandboxError: a judge could not be removed; nothing was changed then.
    """
    if open_beads:
        some = ", ".join(open_beads[:5])
        raise UsageError(
            f"{len(open_beads)} bead(s) are not done: {some}.",
            next_step="Let them end (school ps), or end them (school cancel BEAD); then rotate.",
        )
    if not all(in_force(home, teacher).exists() for teacher in parts.TEACHERS):
        raise UsageError(f"There are no seal keys in {home.keys} yet.", next_step="They are made by: school up")
    if engine is not None:
        _remove_judges(engine, home)
    for teacher in parts.TEACHERS:
        _replace(home, teacher, forget=forget)
    return listed(home)


def _retired(home: Home, teacher: str) -> list[Path]:
    return sorted((home.keys / "retired").glob(f"seal-{teacher}-*.key"))


def _replace(home: Home, teacher: str, *, forget: bool) -> None:
    path = in_force(home, teacher)
    if forget:
        for old in (path, *_retired(home, teacher)):
            old.unlink()
    else:
        folder = home.keys / "retired"
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / f"seal-{teacher}-{bookbag.key_id(read_seal_key(path))}.key"
        path.replace(target)
        if os.getuid() == 0:
            os.chown(target, 0, 0)  # no container needs it any more
    home.hand_over(home.secret(path.name))


def _remove_judges(engine: Engine, home: Home) -> None:
    for teacher in parts.TEACHERS:
        for container in engine.list({LABEL_HOME: home.id, LABEL_KIND: parts.teacher_kind(teacher)}):
            if not isinstance(engine.remove(container.id), Gone):
                raise SandboxError(
                    f"{container.name} could not be removed; it holds the old key.", next_step="Try again in a moment."
                )


def check_key_files(home: Home) -> list[str]:
    """Return what is wrong with the key files: one that others may read, or that holds no key."""
    wrong = []
    for teacher in parts.TEACHERS:
        for path in (in_force(home, teacher), *_retired(home, teacher)):
            try:
                read_seal_key(path)
            except ConfigError as error:
                wrong.append(error.message)
                continue
            if path.stat().st_mode & 0o077:
                wrong.append(f"{path} can be read by others (mode {path.stat().st_mode & 0o777:o}).")
    return wrong
