"""The ledger: what was intended, what happened, and how each bead stands. SQLite, one file per home.

Two kinds of table: ``events`` is append-only and is the history; ``beads`` holds the current row of each bead.
The intent of a step is written before its effect (DESIGN, "Lease and ledger first"), so that after a crash
the ledger names everything that may exist. How it is written: ``orchestrator.sqlite``.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from orchestrator.errors import LedgerError
from orchestrator.sqlite import write_transaction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE IF NOT EXISTS beads (
    bead TEXT PRIMARY KEY,
    status TEXT NOT NULL,            -- running | ended
    outcome TEXT,                    -- an Outcome, once ended
    cleanup TEXT,                    -- pending | done | failed | kept
    human TEXT,                      -- awaiting | approved | declined | fix_requested
    repo TEXT NOT NULL,
    base_sha TEXT NOT NULL,
    head_sha TEXT,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    data TEXT NOT NULL               -- JSON: the request, names of objects, the report
);
CREATE INDEX IF NOT EXISTS beads_status ON beads (status, cleanup);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    bead TEXT,
    kind TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_bead ON events (bead, id);
CREATE TRIGGER IF NOT EXISTS events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the ledger''s events are append-only'); END;
CREATE TABLE IF NOT EXISTS scores (
    profile TEXT PRIMARY KEY,
    score REAL NOT NULL,
    updated REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS score_changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    profile TEXT NOT NULL,
    bead TEXT,
    old REAL NOT NULL,
    new REAL NOT NULL,
    cause TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS judged (     -- since version 2: what a profile did, for readiness (R-40) and EFC (R-42)
    bead TEXT PRIMARY KEY,
    at REAL NOT NULL,
    profile TEXT NOT NULL,
    domain TEXT NOT NULL,
    difficulty TEXT NOT NULL,
    outcome TEXT NOT NULL,
    demand REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS judged_profile ON judged (profile, at);
CREATE TABLE IF NOT EXISTS feedback (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    bead TEXT NOT NULL,
    source TEXT NOT NULL,            -- cto | coo | check
    issue TEXT NOT NULL,             -- the issue's class
    place TEXT NOT NULL,
    informative INTEGER NOT NULL,
    valid INTEGER NOT NULL,
    non_redundant INTEGER NOT NULL,
    retained INTEGER,                -- NULL until a later bead tells
    told_by TEXT                     -- that bead
);
CREATE INDEX IF NOT EXISTS feedback_bead ON feedback (bead);
CREATE TABLE IF NOT EXISTS baselines (
    key TEXT PRIMARY KEY,            -- digest of repository, base_sha, command and image
    status TEXT NOT NULL,
    exit_code INTEGER,
    at REAL NOT NULL
);
"""

BEAD_COLUMNS = ("status", "outcome", "cleanup", "human", "head_sha")


class Ledger:
    """One connection to a home's ledger; its threads take turns."""

    def __init__(self, path: Path) -> None:
        """Open the file, made when missing.

        Raises:
            LedgerError: it can't be opened, or was written by a newer version.
        """
        self._path = path
        self._lock = threading.RLock()
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                self._db.close()
                raise LedgerError(
                    f"The ledger {path} has version {version}; this program knows {SCHEMA_VERSION}.",
                    next_step="Use the newer version of the program that wrote it.",
                )
            if version < SCHEMA_VERSION:
                with self.transaction():
                    for statement in _statements(_SCHEMA):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                path.chmod(0o600)
        except sqlite3.Error as error:
            raise LedgerError(
                f"The ledger {path} can't be opened: {error}.",
                next_step="Check the disk's free space and the file's owner; a damaged file can be moved away.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Hold the write lock for the block; roll back when it raises.

        Raises:
            LedgerError: the database refused (locked for 30 s, disk full, damaged).
        """

        def failed(error: sqlite3.Error) -> LedgerError:
            return LedgerError(
                f"The ledger {self._path} can't be written: {error}.",
                next_step="Check the disk's free space, and whether another program holds the file.",
            )

        return write_transaction(self._db, self._lock, failed)

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    # -- beads -----------------------------------------------------------------------------------------------------

    def open_bead(self, bead: str, *, repo: str, base_sha: str, data: dict[str, Any]) -> float:
        """Write a bead's intent row, the first thing that exists of it; return its time (epoch seconds).

        Raises:
            LedgerError: the bead exists already.
        """
        now = time.time()
        with self.transaction() as db:
            if db.execute("SELECT 1 FROM beads WHERE bead=?", (bead,)).fetchone():
                raise LedgerError(f"Bead {bead} exists already in {self._path}.", next_step="Choose another bead id.")
            db.execute(
                "INSERT INTO beads (bead,status,cleanup,repo,base_sha,created,updated,data) VALUES (?,?,?,?,?,?,?,?)",
                (bead, "running", "pending", repo, base_sha, now, now, _dumps(data)),
            )
            _event(db, bead, "opened", {"repo": repo, "base_sha": base_sha})
        return now

    def update_bead(self, bead: str, *, event: str = "", data: dict[str, Any] | None = None, **columns: Any) -> None:
        """Change columns of a bead's row and merge ``data`` into its data; note it as an event when one is named."""
        unknown = set(columns) - set(BEAD_COLUMNS)
        if unknown:
            raise LedgerError(f"Not columns of a bead: {', '.join(sorted(unknown))}.")
        with self.transaction() as db:
            row = db.execute("SELECT data FROM beads WHERE bead=?", (bead,)).fetchone()
            if row is None:
                raise LedgerError(f"Bead {bead} is not in {self._path}.")
            merged = json.loads(row["data"]) | (data or {})
            assignments = "".join(f", {name}=?" for name in columns)
            db.execute(
                f"UPDATE beads SET updated=?, data=?{assignments} WHERE bead=?",  # noqa: S608 - names checked above
                (time.time(), _dumps(merged), *columns.values(), bead),
            )
            if event:
                _event(db, bead, event, {**columns, **(data or {})})

    def bead(self, bead: str) -> dict[str, Any] | None:
        """Return a bead's row with its data, or None."""
        rows = self._read("SELECT * FROM beads WHERE bead=?", (bead,))
        return _row(rows[0]) if rows else None

    def beads(self, *, running: bool | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """Return beads, newest first; ``running`` filters by whether work or cleanup is still open."""
        where = {
            None: "1",
            True: "(status='running' OR cleanup IN ('pending','failed'))",
            False: "status='ended'",
        }[running]
        rows = self._read(
            f"SELECT * FROM beads WHERE {where} ORDER BY created DESC LIMIT ?",  # noqa: S608 - constant text
            (limit,),
        )
        return [_row(row) for row in rows]

    def answer(self, bead: str, human: str | None, *, when: Sequence[str | None], **data: Any) -> bool:
        """Set a bead's human state if it is one of ``when`` now; note it with its data. Return whether it was (R-46).

        Raises:
            LedgerError: the ledger can't be written.
        """
        with self.transaction() as db:
            row = db.execute("SELECT human, data FROM beads WHERE bead=?", (bead,)).fetchone()
            if row is None or row["human"] not in when:
                return False
            now, word = time.time(), {"state": human, "before": row["human"], **data}
            merged = json.loads(row["data"]) | {"word": {**word, "at": now}}
            db.execute("UPDATE beads SET updated=?, human=?, data=? WHERE bead=?", (now, human, _dumps(merged), bead))
            _event(db, bead, "word", word)
        return True

    def awaiting(self, *human: str) -> list[dict[str, Any]]:
        """Return the beads in one of these human states, oldest first."""
        marks = ",".join("?" * len(human))
        rows = self._read(f"SELECT * FROM beads WHERE human IN ({marks}) ORDER BY created", human)  # noqa: S608 - marks
        return [_row(row) for row in rows]

    # -- events ----------------------------------------------------------------------------------------------------

    def event(self, bead: str | None, kind: str, /, **data: Any) -> None:
        """Append an event."""
        with self.transaction() as db:
            _event(db, bead, kind, data)

    def events(self, bead: str | None = None, *, after: int = 0, limit: int = 10_000) -> list[dict[str, Any]]:
        """Return events in order, of one bead or of all, with ids above ``after``."""
        where, values = ("bead=? AND id>?", (bead, after)) if bead else ("id>?", (after,))
        rows = self._read(
            f"SELECT * FROM events WHERE {where} ORDER BY id LIMIT ?",  # noqa: S608 - constant text
            (*values, limit),
        )
        return [
            {"id": r["id"], "at": r["at"], "bead": r["bead"], "kind": r["kind"], **json.loads(r["data"])} for r in rows
        ]

    # -- baselines of verification -----------------------------------------------------------------------------------

    def baseline(self, key: str) -> tuple[str, int | None] | None:
        """Return (status, exit code) of a verification of base_sha that was run before, or None."""
        rows = self._read("SELECT status, exit_code FROM baselines WHERE key=?", (key,))
        return (rows[0]["status"], rows[0]["exit_code"]) if rows else None

    def keep_baseline(self, key: str, status: str, exit_code: int | None) -> None:
        """Remember how base_sha fared under a verification."""
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO baselines VALUES (?,?,?,?)", (key, status, exit_code, time.time()))


def _statements(script: str) -> Sequence[str]:
    """Split a script where statements end; a trigger's body holds semicolons of its own."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements


def _event(db: sqlite3.Connection, bead: str | None, kind: str, data: dict[str, Any]) -> None:
    db.execute("INSERT INTO events (at,bead,kind,data) VALUES (?,?,?,?)", (time.time(), bead, kind, _dumps(data)))


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str)


def _row(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "data": json.loads(row["data"])}
