"""The embedded task tracker: one SQLite file in the home. Every write is BEGIN IMMEDIATE, so claims are atomic."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Self

from orchestrator import bookbag
from orchestrator.errors import TaskNotFoundError, TrackerError, UsageError
from orchestrator.rails.tasks.base import NewTask, Status, Task
from orchestrator.sqlite import write_transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    priority INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    repo TEXT NOT NULL,
    role TEXT NOT NULL,
    domain TEXT NOT NULL,
    difficulty TEXT NOT NULL,
    labels TEXT NOT NULL,            -- JSON list
    owner TEXT NOT NULL,
    reason TEXT NOT NULL,
    created TEXT NOT NULL,
    updated TEXT NOT NULL
)
"""
_INDEX = "CREATE INDEX IF NOT EXISTS tasks_next ON tasks (status, priority, number)"


class SqliteTasks:
    """The tasks of one home. Its threads take turns; processes wait for each other for up to 30 s."""

    name = "sqlite"

    def __init__(self, path: Path) -> None:
        """Open the file, made when missing.

        Raises:
            TrackerError: it can't be opened, or a newer version wrote it.
        """
        self._path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode=WAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                self._db.close()
                raise TrackerError(
                    f"The task file {path} has version {version}; this program knows {SCHEMA_VERSION}.",
                    next_step="Use the newer version of the program that wrote it.",
                )
            if version < SCHEMA_VERSION:
                with self._write() as db:
                    db.execute(_SCHEMA)
                    db.execute(_INDEX)
                    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                path.chmod(0o600)
        except (OSError, sqlite3.Error) as error:
            raise TrackerError(
                f"The task file {path} can't be opened: {error}.",
                next_step="Check the disk's free space and the file's owner; a damaged file can be moved away.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def create(self, task: NewTask) -> Task:
        """Create a task; without an id one is minted from role and domain (R-6).

        Raises:
            UsageError: it can't be created as given, or its id is taken.
        """
        task.check()
        task_id = task.id or bookbag.new_bead(task.role or "task", task.domain or "general")
        at = bookbag.now()
        with self._write() as db:
            if db.execute("SELECT 1 FROM tasks WHERE id=?", (task_id,)).fetchone():
                raise UsageError(f"There is a task {task_id} already.", next_step="Choose another id.")
            db.execute(
                "INSERT INTO tasks (id,status,priority,title,text,repo,role,domain,difficulty,labels,owner,reason,"
                "created,updated) VALUES (?,?,?,?,?,?,?,?,?,?,'','',?,?)",
                (
                    task_id,
                    Status.OPEN,
                    task.priority,
                    task.headline,
                    task.text,
                    task.repo,
                    task.role,
                    task.domain,
                    task.difficulty,
                    json.dumps(task.labels),
                    at,
                    at,
                ),
            )
            return self._get(task_id)

    def show(self, task_id: str) -> Task:
        """Return a task."""
        with self._reading():
            return self._get(task_id)

    def list(self, *, closed: bool = False, limit: int = 200) -> Sequence[Task]:
        """Return tasks, the next one to be done first."""
        return self._select("" if closed else "WHERE status<>'closed'", limit)

    def ready(self, *, limit: int = 100) -> Sequence[Task]:
        """Return open tasks, by priority and then by age."""
        return self._select("WHERE status='open'", limit)

    def claim(self, task_id: str, owner: str) -> Task | None:
        """Take an open task."""
        with self._write():
            task = self._get(task_id)
            if task.status is Status.OPEN:
                return self._set(task_id, Status.CLAIMED, owner=owner)
            return task if task.status is Status.CLAIMED and task.owner == owner else None

    def claim_next(self, owner: str) -> Task | None:
        """Take the next open task."""
        with self._write() as db:
            row = db.execute("SELECT id FROM tasks WHERE status='open' ORDER BY priority, number LIMIT 1").fetchone()
            return None if row is None else self._set(row["id"], Status.CLAIMED, owner=owner)

    def block(self, task_id: str, reason: str) -> Task:
        """Set a task aside.

        Raises:
            UsageError: it is closed.
        """
        with self._write():
            task = self._get(task_id)
            if task.status is Status.CLOSED:
                raise UsageError(f"Task {task_id} is closed.", next_step=f"Reopen it: school tasks reopen {task_id}")
            return self._set(task_id, Status.BLOCKED, owner=task.owner, reason=reason)

    def reopen(self, task_id: str, reason: str = "") -> Task:
        """Make a task open."""
        with self._write():
            self._get(task_id)
            return self._set(task_id, Status.OPEN, reason=reason)

    def close(self, task_id: str, reason: str) -> Task:
        """Close a task."""
        with self._write():
            task = self._get(task_id)
            if task.status is Status.CLOSED:
                return task
            return self._set(task_id, Status.CLOSED, owner=task.owner, reason=reason)

    def _set(self, task_id: str, status: Status, *, owner: str = "", reason: str = "") -> Task:
        self._db.execute(
            "UPDATE tasks SET status=?, owner=?, reason=?, updated=? WHERE id=?",
            (status, owner, reason, bookbag.now(), task_id),
        )
        return self._get(task_id)

    def _get(self, task_id: str) -> Task:
        row = self._db.execute("SELECT * FROM tasks WHERE id=?", (task_id,)).fetchone()
        if row is None:
            raise TaskNotFoundError(f"There is no task {task_id[:80]!r}.", next_step="List them: school tasks --all")
        return _task(row)

    def _select(self, where: str, limit: int) -> Sequence[Task]:
        with self._reading():
            query = f"SELECT * FROM tasks {where} ORDER BY priority, number LIMIT ?"  # noqa: S608 - constant text
            return [_task(row) for row in self._db.execute(query, (limit,)).fetchall()]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise TrackerError(f"The task file {self._path} can't be read: {error}.") from error

    def _write(self) -> AbstractContextManager[sqlite3.Connection]:
        def failed(error: sqlite3.Error) -> TrackerError:
            return TrackerError(
                f"The task file {self._path} can't be written: {error}.",
                next_step="Check the disk's free space, and whether another program holds the file.",
            )

        return write_transaction(self._db, self._lock, failed)


def _task(row: sqlite3.Row) -> Task:
    values: dict[str, Any] = {name: row[name] for name in row.keys() if name != "number"}  # noqa: SIM118 - a Row
    return Task(**{**values, "status": Status(row["status"]), "labels": tuple(json.loads(row["labels"]))})
