"""The human's last word (R-43 to R-46): approve, decline, or send the work to a new student.

The states are the ledger's: awaiting -> approved | declined | fix_requested, each move once, by compare-and-set, so
that a mail and a command line can't both win. An approval names the commit and is refused unless everything that made
the bead accepted still holds. A fix is a new bead for a new student; the principal edits nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.errors import BlockedError, UsageError
from orchestrator.principal.request import MAX_TASK, SpawnRequest
from orchestrator.principal.standing import why_not
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger

AWAITING, APPROVED, DECLINED, FIX_REQUESTED = "awaiting", "approved", "declined", "fix_requested"
MAX_NOTE = 8000
SHORTEST_SHA = 7

_FIXABLE = {outcome for outcome in Outcome if outcome.students_fault} | {Outcome.ACCEPTED, Outcome.REJECTED}


@dataclass(frozen=True, slots=True)
class Given:
    """A word that was given. ``repeated``: it had been given before, so nothing was done."""

    bead: str
    state: str
    head_sha: str | None = None
    next_bead: str | None = None
    repeated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return asdict(self)


class Words:
    """Takes a person's word for beads of one home."""

    def __init__(self, home: Home, ledger: Ledger, *, fix_rounds: int) -> None:
        self._home = home
        self._ledger = ledger
        self._fix_rounds = fix_rounds

    def inbox(self) -> list[dict[str, Any]]:
        """Return the beads that wait for a word, oldest first."""
        return self._ledger.awaiting(AWAITING)

    def no_approval(self, bead: str) -> str:
        """Return why a bead can't be approved now; "" when it can (R-46)."""
        row = self.row(bead)
        if row["human"] not in {AWAITING, APPROVED}:
            return f"it is {row['human'] or 'not awaiting a word'}"
        return why_not(self._home, row)

    def approve(self, bead: str, sha: str, *, via: str) -> Given:
        """Approve exactly this commit.

        Args:
            bead: Which.
            sha: The commit, or its first digits.
            via: Who says so, by which way; for the record.

        Raises:
            UsageError: another commit is named, R-39 does not hold, anything moved, or another word was given.
        """
        row = self.row(bead)
        head = str(row["head_sha"] or "")
        if len(sha) < SHORTEST_SHA or not head.startswith(sha.lower()):
            raise UsageError(
                f"{sha[:64]!r} is not the commit that was judged in {bead}: {head or 'there is none'}.",
                next_step=f"Look at it: school diff {bead}; then name it whole, or its first {SHORTEST_SHA} digits.",
            )
        reason = why_not(self._home, row)
        if reason:
            raise UsageError(f"{bead} can't be approved: {reason}.", next_step=f"See: school show {bead}")
        if not self._ledger.answer(bead, APPROVED, when=[AWAITING], sha=head, via=via):
            return self._repeated(bead, APPROVED)
        return Given(bead, APPROVED, head)

    def decline(self, bead: str, why: str, *, via: str) -> Given:
        """Decline the work: its branch and ref stay, nothing is merged.

        Raises:
            UsageError: it waits for no word, or another one was given.
        """
        row = self.row(bead)
        if not self._ledger.answer(bead, DECLINED, when=[AWAITING], why=why[:MAX_NOTE], via=via):
            return self._repeated(bead, DECLINED)
        return Given(bead, DECLINED, row["head_sha"])

    def request_fix(self, bead: str, note: str, *, via: str) -> Given:
        """Send the work to a new student, under a new bead that is named here and driven by whoever is next (R-43).

        Raises:
            UsageError: there is no note, or the bead is not one whose work can be fixed.
            BlockedError: its rounds are used up (SCHOOL_FIX_ROUNDS).
        """
        row = self.row(bead)
        if not note.strip():
            raise UsageError("There is no note.", next_step="Say what is to be done differently: --note '…'")
        if row["status"] != "ended" or row["outcome"] not in _FIXABLE:
            raise UsageError(
                f"{bead} has nothing to fix: it {'ended as ' + row['outcome'] if row['outcome'] else 'runs'}.",
                next_step=f"See: school show {bead}",
            )
        number = round_of(row) + 1
        if number > self._fix_rounds:
            raise BlockedError(
                f"{bead} is the result of {number - 1} round(s) of fixing; more are not allowed (SCHOOL_FIX_ROUNDS).",
                next_step="Write a new task, or raise the limit.",
            )
        request = row["data"]["request"]
        following = bookbag.new_bead(request["role"], request["domain"])
        given = {"note": note.strip()[:MAX_NOTE], "round": number, "next": following, "via": via}
        if not self._ledger.answer(bead, FIX_REQUESTED, when=[None, AWAITING, DECLINED], **given):
            return self._repeated(bead, FIX_REQUESTED)
        return Given(bead, FIX_REQUESTED, row["head_sha"], following)

    def withdraw_fix(self, bead: str, reason: str) -> None:
        """Take a fix back whose new bead could not be opened; the bead waits again for what it waited for."""
        row = self.row(bead)
        before = (row["data"].get("word") or {}).get("before")
        self._ledger.answer(bead, before, when=[FIX_REQUESTED], withdrawn=reason)

    def pending_fixes(self) -> list[dict[str, Any]]:
        """Return beads whose fix was asked for and whose new bead was not opened: nobody drove it yet."""
        rows = self._ledger.awaiting(FIX_REQUESTED)
        return [row for row in rows if self._ledger.bead(str(row["data"]["word"]["next"])) is None]

    def row(self, bead: str) -> dict[str, Any]:
        """Return a bead's row.

        Raises:
            UsageError: there is no such bead.
        """
        row = self._ledger.bead(bead)
        if row is None:
            raise UsageError(f"Bead {bead} is not in the ledger.", next_step="List them: school ps --all")
        return row

    def _repeated(self, bead: str, state: str) -> Given:
        """Return the word that is there, when it is the same.

        Raises:
            UsageError: it is another one, or the bead waits for none.
        """
        row = self.row(bead)
        if row["human"] != state:
            now = f"is {row['human']} already" if row["human"] else f"waits for no word: it ended as {row['outcome']}"
            raise UsageError(f"{bead} {now}.", next_step="What waits: school inbox")
        return Given(bead, state, row["head_sha"], (row["data"].get("word") or {}).get("next"), repeated=True)


def round_of(row: Mapping[str, Any]) -> int:
    """Return how many rounds of fixing led to a bead; 0 for a first one."""
    context = (row["data"].get("request") or {}).get("context") or {}
    return int((context.get("fix") or {}).get("round") or 0)


def fix_request(row: Mapping[str, Any]) -> SpawnRequest:
    """Return the request for the new student: the same task and base, with the note and all findings so far as context.

    The note becomes part of the task, so that both judges hold the work against it too.
    """
    word, before = row["data"]["word"], SpawnRequest.from_json(row["data"]["request"])
    report = row["data"].get("report") or {}
    earlier = before.context.get("fix") or {}
    task = str(earlier.get("task") or before.task)
    notes = [*(earlier.get("notes") or []), word["note"]]
    asked = "".join(f"\n\nA person looked at attempt {n} and asks for this:\n{note}" for n, note in enumerate(notes, 1))
    fix = {
        "of": row["bead"],
        "round": word["round"],
        "task": task,
        "notes": notes,
        "note": word["note"],
        "outcome": row["outcome"],
        "reason": str(row["data"].get("reason") or ""),
        "findings": [*(earlier.get("findings") or []), *(report.get("findings") or [])][-40:],
        "earlier_commit": row["head_sha"] if row["head_sha"] != row["base_sha"] else None,
        "earlier_summary": str(report.get("output") or "")[:4000],
    }
    return replace(
        before,
        task=(task + asked)[:MAX_TASK],
        base=row["base_sha"],
        bead=word["next"],
        context={**before.context, "fix": fix},
        keep=False,
        task_id="",
        routed=f"round {word['round']} of fixing {row['bead']}",
    )
