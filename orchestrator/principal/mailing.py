"""One round of mail: notices for verdicts that a person has not heard of, answers read and carried out (R-45, R-46).

The rails decide whether an answer counts; here it becomes a word, by the same way as from the command line.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import LedgerError, MailError, SchoolError
from orchestrator.principal.word import AWAITING, Words
from orchestrator.rails.mail.choice import allowed_senders, open_mailer
from orchestrator.rails.mail.notices import Notices
from orchestrator.rails.mail.rounds import Handled, read_answers, send_notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger
    from orchestrator.rails.mail.base import Mailer
    from orchestrator.rails.mail.notices import Answer
    from orchestrator.settings import Settings

REJECTED_DAYS = 2.0
"""How long after its end a rejected bead is still told of: older ones are from before there was mail."""


@dataclass(slots=True)
class MailRound:
    """What one round did."""

    sent: list[str] = field(default_factory=list)  # beads
    handled: list[Handled] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def mail_round(home: Home, ledger: Ledger, in_force: Settings) -> MailRound | None:
    """Send what is to be told, read what came in; None when mail is off.

    Raises:
        ConfigError: mail is on, and something about it is not set.
    """
    mailer = open_mailer(home, in_force)
    if mailer is None:
        return None
    done, notices = MailRound(), Notices(ledger)
    words = Words(home, ledger, fix_rounds=in_force.fix_rounds)
    with contextlib.closing(mailer):
        _void_decided(ledger, notices)
        _send(home, ledger, in_force, mailer, notices, words, done)
        try:
            handled, problems = read_answers(
                mailer,
                notices,
                allow=allowed_senders(in_force),
                no_approval=words.no_approval,
                act=lambda answer: carry_out(words, answer),
            )
        except MailError as error:
            done.problems.append(error.message)
        else:
            done.handled, done.problems = handled, [*done.problems, *problems]
    return done


def carry_out(words: Words, answer: Answer) -> str:
    """Turn an answer that counts into a word; return what came of it. The next step of the tick drives a fix.

    Raises:
        UsageError: it can't be carried out any more.
        BlockedError: the rounds of fixing are used up.
    """
    via = f"mail from {answer.sender}"
    match answer.command:
        case "approve":
            # the commit that the notice named: when another one lies there now, the word is refused
            given = words.approve(answer.bead, answer.head_sha, via=via)
            return f"approved: commit {given.head_sha}. Merge it with: school apply {answer.bead}"
        case "fix":
            given = words.request_fix(answer.bead, answer.note, via=via)
            return f"a new student gets it, as bead {given.next_bead}; you will hear of the new verdict"
        case _:
            words.decline(answer.bead, answer.note or "no reason given", via=via)
            return "declined: nothing is merged"


def _send(
    home: Home,
    ledger: Ledger,
    in_force: Settings,
    mailer: Mailer,
    notices: Notices,
    words: Words,
    done: MailRound,
) -> None:
    key = bytes.fromhex(home.secret("mail-token.key").read_text(encoding="ascii").strip())
    told = _told(ledger)
    for row in _to_tell(ledger):
        bead, report = str(row["bead"]), row["data"].get("report")
        if bead in told or not report:
            continue
        try:
            send_notice(
                mailer,
                notices,
                report,
                key=key,
                to=in_force.mail_to,
                no_approval=words.no_approval(bead),
                days=in_force.mail_token_days,
            )
        except SchoolError as error:
            done.problems.append(f"{bead}: {error.message}")
            if isinstance(error, (MailError, LedgerError)):
                return  # the next one would fail in the same way; the next round tries again
        else:
            done.sent.append(bead)


def _to_tell(ledger: Ledger) -> Iterator[dict[str, Any]]:
    yield from ledger.awaiting(AWAITING)
    since = time.time() - REJECTED_DAYS * 86_400
    for row in reversed(ledger.beads(running=False, limit=200)):
        if row["outcome"] == "rejected" and row["human"] is None and row["updated"] > since:
            yield row


def _told(ledger: Ledger) -> set[str]:
    with ledger.transaction() as db:
        rows = db.execute("SELECT bead FROM mail_notices WHERE state<>'sending'").fetchall()
    return {row["bead"] for row in rows}


def _void_decided(ledger: Ledger, notices: Notices) -> None:
    """Let no mail answer for a bead that got its word elsewhere."""
    for notice in notices.waiting(now=time.time()):
        row = ledger.bead(notice.bead)
        if row is None or row["human"] not in {None, AWAITING}:
            notices.void(notice.bead)
