"""Telling a person of a verdict, and reading what came back. One round each; who calls them decides how often."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import MailError, SchoolError
from orchestrator.rails.mail.base import Outgoing, Reply
from orchestrator.rails.mail.judge import Accepted, Expectation, Refused, judge_reply
from orchestrator.rails.mail.letter import letter, subject
from orchestrator.rails.mail.notices import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.rails.mail.base import Mailer
    from orchestrator.rails.mail.notices import Notice, Notices

_log = logging.getLogger(__name__)

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Handled:
    """One mail and what came of it: ``command`` is None and ``result`` the reason when it was refused."""

    bead: str | None
    sender: str
    command: str | None
    result: str


def send_notice(
    mailer: Mailer,
    notices: Notices,
    report: Mapping[str, Any],
    *,
    key: bytes,
    to: str,
    number: int = 0,
    no_approval: str = "",
    days: int = 7,
) -> Notice:
    """Tell a person of a verdict; the same call again after a crash sends nothing twice.

    Args:
        mailer: The mail service.
        notices: The store.
        report: The bead's report (its ``--json`` object).
        key: A secret of this home: the token is derived from it, and so is the same at a repeat.
        to: The person's address.
        number: The bead's round of fixing: 0 is the first verdict.
        no_approval: Why R-39 does not hold, or "".
        days: How long it can be answered.

    Raises:
        MailError: it could not be sent; the same call may be made again.
    """
    now = time.time()
    bead, head_sha = str(report["bead"]), str(report["head_sha"] or "")
    token = hmac.new(key, f"{bead}\0{number}\0{head_sha}".encode(), hashlib.sha256).hexdigest()[:32]
    notice = notices.prepare(bead, number, head_sha=head_sha, token=token, now=now, expires=now + days * DAY)
    if notice.state == "sending":
        text = letter(report, token, no_approval=no_approval, days=days)
        title = subject(report)
        # of the text too: a service refuses the same key for another text
        idempotency = hashlib.sha256(f"notice\0{to}\0{title}\0{text}".encode()).hexdigest()[:40]
        notices.sent(notice, mailer.send(Outgoing(to, title, text, idempotency)))
    return notice


def read_answers(
    mailer: Mailer,
    notices: Notices,
    *,
    allow: frozenset[str],
    no_approval: Callable[[str], str],
    act: Callable[[Answer], str],
) -> tuple[list[Handled], tuple[str, ...]]:
    """Read what came in, once; carry out what counts.

    Args:
        mailer: The mail service.
        notices: The store.
        allow: Addresses, in lower case, whose answers count.
        no_approval: Returns why a bead can't be approved now, or "".
        act: Carries an answer out and returns what came of it, as a sentence. It may be called again with the same
            answer after a crash. A SchoolError is what came of it; the token stays used.

    Returns:
        What was read (only mails not read before), and what could not be.

    Raises:
        MailError: the service does not answer; nothing was read.
    """
    handled = [_carry_out(mailer, notices, answer, act) for answer in notices.unfinished()]
    now = time.time()
    waiting = notices.waiting(now=now)
    since = min((notice.created for notice in waiting), default=now) - DAY
    incoming = mailer.incoming([notice.thread_id for notice in waiting], since=since)
    for reply in incoming.replies:
        if notices.seen(reply.message_id):
            continue
        notice = notices.of_thread(reply.thread_id) if reply.thread_id else None
        judgment = judge_reply(reply, _expectation(notice, allow, no_approval, now))
        judgment = notices.record(reply, notice, judgment, now=now)
        if isinstance(judgment, Refused):
            _log.warning("mail from %.200r ignored: %s", reply.sender, judgment.reason)
            handled.append(Handled(notice.bead if notice else None, reply.sender[:200], None, judgment.reason))
        elif notice is not None:
            handled.append(_carry_out(mailer, notices, _answer(reply, notice, judgment), act))
    return handled, incoming.problems


def _expectation(
    notice: Notice | None, allow: frozenset[str], no_approval: Callable[[str], str], now: float
) -> Expectation | None:
    if notice is None:
        return None
    return Expectation(
        bead=notice.bead,
        head_sha=notice.head_sha,
        thread_id=notice.thread_id,
        token_sha256=notice.token_sha256,
        expires=notice.expires,
        now=now,
        allow=allow,
        used=notice.state != "waiting",
        no_approval=no_approval(notice.bead),
    )


def _answer(reply: Reply, notice: Notice, judgment: Accepted) -> Answer:
    return Answer(
        reply.message_id,
        reply.thread_id,
        notice.bead,
        judgment.sender,
        judgment.command,
        judgment.note,
        notice.head_sha,
    )


def _carry_out(mailer: Mailer, notices: Notices, answer: Answer, act: Callable[[Answer], str]) -> Handled:
    try:
        result = act(answer)
    except SchoolError as error:
        result = f"{answer.command} failed: {error.message} {error.next_step}".strip()
    notices.finish(answer, result)
    try:
        mailer.answer(Reply(answer.message_id, answer.thread_id, answer.sender), f"{answer.bead}: {result}\n")
    except MailError as error:
        _log.warning("%s: the result could not be mailed: %s", answer.bead, error.message)
    return Handled(answer.bead, answer.sender, answer.command, result)
