"""The school's records as staff may see them: rows of the ledger, bookbags, and files of a few named areas."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator import bookbag
from orchestrator.bookbag import Dirs, files
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from orchestrator.home import Home

START_SCORE = 50.0
FILE_LIMIT = 4 << 20  # bytes


class LedgerLike(Protocol):
    """What of the ledger is used here."""

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Hold the write lock for the block; roll back when it raises."""

    def beads(self, *, running: bool | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """Return beads, newest first."""

    def event(self, bead: str | None, kind: str, /, **data: Any) -> None:
        """Append an event."""


class Records:
    """The records of one home."""

    def __init__(self, home: Home, ledger: LedgerLike) -> None:
        self._home = home
        self._ledger = ledger
        self._dirs = Dirs(home.bookbags, home.signals, home.locks)
        self._areas: dict[str, Path] = {
            "bookbags": home.bookbags,
            "signals": home.signals,
            "locks": home.locks,
            "sessions/cto": home.sessions / "cto",
            "sessions/coo": home.sessions / "coo",
            "consolidated/cto": home.sessions / "cto" / "consolidated",
            "consolidated/coo": home.sessions / "coo" / "consolidated",
        }

    def beads(self, limit: int) -> list[dict[str, Any]]:
        """Return beads, newest first, with their reports."""
        return self._ledger.beads(limit=limit)

    def score_changes(self, limit: int) -> list[dict[str, Any]]:
        """Return changes of scores, oldest first."""
        with self._ledger.transaction() as db:
            rows = db.execute(
                "SELECT * FROM (SELECT * FROM score_changes ORDER BY id DESC LIMIT ?) ORDER BY id", (limit,)
            ).fetchall()
        return [dict(row) for row in rows]

    def scores(self, limit: int) -> list[dict[str, Any]]:
        """Return each profile's score."""
        with self._ledger.transaction() as db:
            rows = db.execute("SELECT * FROM scores ORDER BY profile LIMIT ?", (limit,)).fetchall()
        return [dict(row) for row in rows]

    def bookbag(self, bead: str) -> dict[str, Any] | None:
        """Return a bookbag.

        Raises:
            BookbagCorruptError: the file holds none.
        """
        return bookbag.read_bookbag(bead, dirs=self._dirs)

    def names(self, area: str) -> list[tuple[str, float]]:
        """Return the regular files of an area, hidden ones too, with their age in seconds."""
        folder = self._folder(area)
        found: list[tuple[str, float]] = []
        now = time.time()
        try:
            paths = sorted(folder.iterdir())
        except FileNotFoundError:
            return []
        for path in paths:
            try:
                if path.is_file() and not path.is_symlink():
                    found.append((path.name, now - path.lstat().st_mtime))
            except FileNotFoundError:
                continue
        return found

    def read(self, area: str, name: str) -> bytes | None:
        """Return a file of an area, or None.

        Raises:
            BookbagCorruptError: it is not a regular file, or too long.
        """
        return files.read_file(str(self._folder(area)), _name(name), limit=FILE_LIMIT)

    def check(self, area: str, name: str) -> None:
        """Refuse what is no file of an area.

        Raises:
            UsageError: there is no such area, or the name leads out of it.
        """
        self._folder(area)
        _name(name)

    def commit(
        self,
        removals: Sequence[tuple[str, str]],
        notes: Sequence[tuple[str | None, str]],
        scores: Sequence[Any],
        by: str,
    ) -> None:
        """Carry out what a plugin asked for: the ledger's part in one transaction, then the files."""
        now = time.time()
        with self._ledger.transaction() as db:
            for change in scores:
                row = db.execute("SELECT score FROM scores WHERE profile=?", (change.profile,)).fetchone()
                old = float(row["score"]) if row else START_SCORE
                new = max(0.0, min(100.0, old + change.delta))
                db.execute("INSERT OR REPLACE INTO scores VALUES (?,?,?)", (change.profile, new, now))
                db.execute(
                    "INSERT INTO score_changes (at,profile,bead,old,new,cause) VALUES (?,?,NULL,?,?,?)",
                    (now, change.profile, old, new, f"staff {by}: {change.why}"),
                )
        for bead, text in notes:
            self._ledger.event(bead, "staff.note", by=by, text=text)
        for area, name in removals:
            files.remove_file(str(self._folder(area)), _name(name))

    def last_run(self, plugin: str) -> dict[str, Any] | None:
        """Return what the ledger says of a plugin's last run that was written down, or None."""
        with self._ledger.transaction() as db:
            row = db.execute(
                "SELECT data FROM events WHERE kind='staff.run' AND json_extract(data, '$.plugin')=? "
                "ORDER BY id DESC LIMIT 1",
                (plugin,),
            ).fetchone()
        return None if row is None else dict(json.loads(row["data"]))

    def event(self, kind: str, **data: Any) -> None:
        """Append an event about staff itself."""
        self._ledger.event(None, kind, **data)

    def _folder(self, area: str) -> Path:
        try:
            return self._areas[area]
        except KeyError:
            raise UsageError(
                f"Staff has no area {area!r}.", next_step=f"Use one of {', '.join(self._areas)}."
            ) from None


def _name(name: str) -> str:
    """Return a name that is one file of a folder."""
    if not name or "/" in name or "\0" in name or name in {".", ".."}:
        raise UsageError(f"Not a file's name: {name[:80]!r}.")
    return name
