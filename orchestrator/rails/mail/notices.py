"""Which notices wait for an answer, and every mail that was read: two tables beside the ledger's own.

A token is kept as its digest only. It is used in the same transaction that records the answer, so that of two readers
one wins. An answer that was taken and not yet carried out (the program died in between) stays in ``unfinished``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.rails.mail.judge import Accepted, Refused, token_digest

if TYPE_CHECKING:
    import sqlite3
    from contextlib import AbstractContextManager

    from orchestrator.rails.mail.base import Reply, Sent

_TABLES = (
    """CREATE TABLE IF NOT EXISTS mail_notices (
        bead TEXT NOT NULL,
        round INTEGER NOT NULL,
        head_sha TEXT NOT NULL,
        token_sha256 TEXT NOT NULL,
        state TEXT NOT NULL,             -- sending | waiting | answered | void
        thread_id TEXT,
        created REAL NOT NULL,
        expires REAL NOT NULL,
        PRIMARY KEY (bead, round)
    )""",
    "CREATE INDEX IF NOT EXISTS mail_notices_thread ON mail_notices (thread_id)",
    """CREATE TABLE IF NOT EXISTS mail_messages (
        message_id TEXT PRIMARY KEY,
        thread_id TEXT NOT NULL,
        bead TEXT,
        sender TEXT NOT NULL,
        at REAL NOT NULL,
        command TEXT,                    -- NULL: refused
        note TEXT NOT NULL,              -- or the reason
        result TEXT                      -- what came of it; NULL: not carried out yet
    )""",
)


class Transactions(Protocol):
    """What of the ledger is used here."""

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Hold the write lock for the block; roll back when it raises."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice. Times are epoch seconds; ``thread_id`` is empty until it was sent."""

    bead: str
    round: int
    head_sha: str
    token_sha256: str
    state: str
    thread_id: str
    created: float
    expires: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's word for a bead, as it was taken; ``head_sha`` is the commit that its notice was about."""

    message_id: str
    thread_id: str
    bead: str
    sender: str
    command: str
    note: str
    head_sha: str = ""


class Notices:
    """The store. Methods raise LedgerError when the ledger does."""

    def __init__(self, ledger: Transactions) -> None:
        self._ledger = ledger
        with ledger.transaction() as db:
            for statement in _TABLES:
                db.execute(statement)

    def prepare(self, bead: str, number: int, *, head_sha: str, token: str, now: float, expires: float) -> Notice:
        """Write a notice down before it is sent; older ones of the bead can't be answered any more.

        The same notice again (a crash before it was sent) is the same row.
        """
        with self._ledger.transaction() as db:
            db.execute(
                "UPDATE mail_notices SET state='void' WHERE bead=? AND round<>? AND state IN ('sending','waiting')",
                (bead, number),
            )
            db.execute(
                "INSERT OR IGNORE INTO mail_notices VALUES (?,?,?,?,'sending',NULL,?,?)",
                (bead, number, head_sha, token_digest(token), now, expires),
            )
            return _notice(db.execute("SELECT * FROM mail_notices WHERE bead=? AND round=?", (bead, number)).fetchone())

    def sent(self, notice: Notice, sent: Sent) -> None:
        """Note that it was sent."""
        with self._ledger.transaction() as db:
            db.execute(
                "UPDATE mail_notices SET state='waiting', thread_id=? WHERE bead=? AND round=? AND state='sending'",
                (sent.thread_id, notice.bead, notice.round),
            )

    def void(self, bead: str) -> None:
        """Let no mail answer for this bead any more: a person decided elsewhere."""
        with self._ledger.transaction() as db:
            db.execute("UPDATE mail_notices SET state='void' WHERE bead=? AND state IN ('sending','waiting')", (bead,))

    def waiting(self, *, now: float) -> list[Notice]:
        """Return the notices that can be answered, oldest first."""
        with self._ledger.transaction() as db:
            rows = db.execute(
                "SELECT * FROM mail_notices WHERE state='waiting' AND expires>? ORDER BY created", (now,)
            ).fetchall()
        return [_notice(row) for row in rows]

    def of_thread(self, thread_id: str) -> Notice | None:
        """Return the newest notice of a thread, whatever its state."""
        with self._ledger.transaction() as db:
            row = db.execute(
                "SELECT * FROM mail_notices WHERE thread_id=? ORDER BY created DESC LIMIT 1", (thread_id,)
            ).fetchone()
        return None if row is None else _notice(row)

    def seen(self, message_id: str) -> bool:
        """Return whether a mail was read before."""
        with self._ledger.transaction() as db:
            return db.execute("SELECT 1 FROM mail_messages WHERE message_id=?", (message_id,)).fetchone() is not None

    def record(
        self, reply: Reply, notice: Notice | None, judgment: Accepted | Refused, *, now: float
    ) -> Accepted | Refused:
        """Record a mail, and use the token of one that counts, in one step.

        Returns:
            The judgment that stands: a refusal where another reader was faster.
        """
        with self._ledger.transaction() as db:
            if db.execute("SELECT 1 FROM mail_messages WHERE message_id=?", (reply.message_id,)).fetchone():
                return Refused("this message was read before")
            if isinstance(judgment, Accepted):
                used = db.execute(
                    "UPDATE mail_notices SET state='answered' WHERE bead=? AND round=? AND state='waiting'",
                    (notice.bead, notice.round) if notice else ("", 0),
                )
                if used.rowcount != 1:
                    judgment = Refused("its notice waits for no answer any more")
            taken = isinstance(judgment, Accepted)
            row = (
                reply.message_id,
                reply.thread_id,
                notice.bead if notice else None,
                judgment.sender if isinstance(judgment, Accepted) else reply.sender[:200],
                now,
                judgment.command if isinstance(judgment, Accepted) else None,
                judgment.note if isinstance(judgment, Accepted) else judgment.reason,
                None if taken else "ignored",
            )
            db.execute("INSERT INTO mail_messages VALUES (?,?,?,?,?,?,?,?)", row)
        return judgment

    def unfinished(self) -> list[Answer]:
        """Return answers that were taken and not carried out, oldest first."""
        with self._ledger.transaction() as db:
            rows = db.execute(
                "SELECT m.*, n.head_sha FROM mail_messages m JOIN mail_notices n ON n.bead=m.bead "
                "AND n.thread_id=m.thread_id AND n.state='answered' WHERE m.result IS NULL ORDER BY m.at"
            ).fetchall()
        names = ("message_id", "thread_id", "bead", "sender", "command", "note", "head_sha")
        return [Answer(*(row[name] for name in names)) for row in rows]

    def finish(self, answer: Answer, result: str) -> None:
        """Note what came of an answer."""
        with self._ledger.transaction() as db:
            db.execute("UPDATE mail_messages SET result=? WHERE message_id=?", (result[:1000], answer.message_id))

    def messages(self, *, limit: int = 100) -> list[dict[str, object]]:
        """Return what was read, newest first: sender, bead, command or None, note or reason, result."""
        with self._ledger.transaction() as db:
            rows = db.execute("SELECT * FROM mail_messages ORDER BY at DESC LIMIT ?", (limit,)).fetchall()
        return [dict(row) for row in rows]


def _notice(row: sqlite3.Row) -> Notice:
    return Notice(**{**dict(row), "thread_id": row["thread_id"] or ""})
