"""Whether a reply is a person's word (R-46). A pure function that fails closed: what does not clearly count does not.

A reply counts when it comes from an allow-listed address, in the bead's own thread, carries the notice's token, which
was not used and has not run out, and holds exactly one command in its own words. ``/approve`` names the commit.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from dataclasses import dataclass
from email.utils import getaddresses
from typing import TYPE_CHECKING, Literal

from orchestrator.rails.mail.base import TEXT_LIMIT

if TYPE_CHECKING:
    from orchestrator.rails.mail.base import Reply

Command = Literal["approve", "reject", "fix"]

NOTE_LIMIT = 4000  # characters
SHA_SHORTEST = 12  # hex digits of a commit that name it
TOKEN = re.compile(r"[0-9a-f]{32}")

_COMMAND = re.compile(r"/[A-Za-z]")
_WORD = re.compile(r"\S+")
_SHA = re.compile(rf"[0-9a-f]{{{SHA_SHORTEST},64}}")
_ADDRESS = re.compile(r"[^\s@<>\"(),;:\\]+@[A-Za-z0-9.-]+")
# where an older mail begins below an answer, as the common programs write it
_QUOTE_HEADS = (
    re.compile(r"^On\b.{0,300}\bwrote:\s*$", re.DOTALL),
    re.compile(r"^Am\b.{0,300}\bschrieb\b.{0,200}:\s*$", re.DOTALL),
    re.compile(r"^Le\b.{0,300}\ba écrit\s*:\s*$", re.DOTALL),
    re.compile(r"^El\b.{0,300}\bescribió:\s*$", re.DOTALL),
)
_QUOTE_LINES = re.compile(
    r"^(-{2,}\s*(original message|forwarded message|ursprüngliche nachricht).*|_{10,}|from:\s.*@.*)$", re.IGNORECASE
)
_SIGNATURE = "-- "


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an answer to one notice has to fit.

    ``no_approval`` is why R-39 does not hold, or "" when it does; ``allow`` holds addresses in lower case; times are
    epoch seconds.
    """

    bead: str
    head_sha: str
    thread_id: str
    token_sha256: str
    expires: float
    now: float
    allow: frozenset[str]
    used: bool = False
    seen: bool = False
    no_approval: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A person's word."""

    command: Command
    note: str
    sender: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A reply that has no effect, and why."""

    reason: str


def token_digest(token: str) -> str:
    """Return how a token is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


class _NoWordError(Exception):
    """Why a reply does not count."""


def judge_reply(reply: Reply, expected: Expectation | None) -> Accepted | Refused:
    """Return what a reply says, or why it does not count. ``expected`` is None where no notice has its thread."""
    try:
        if expected is None or not reply.thread_id or reply.thread_id != expected.thread_id:
            raise _NoWordError("no notice waits for an answer in this thread")
        if expected.seen:
            raise _NoWordError("this message was read before")
        sender = _check_sender(reply, expected)
        if expected.used:
            raise _NoWordError("its notice waits for no answer any more")
        if expected.now >= expected.expires:
            raise _NoWordError("the token has run out")
        name, rest = _command(reply)
        return _complete(name, _check_token(rest, expected), sender, expected)
    except _NoWordError as refusal:
        return Refused(str(refusal))


def _check_sender(reply: Reply, expected: Expectation) -> str:
    if reply.automatic:
        raise _NoWordError("a program sent it, not a person")
    sender = sole_address(reply.sender)
    if sender is None:
        raise _NoWordError("its From does not name exactly one address")
    if not expected.allow:
        raise _NoWordError("nobody is allowed to answer: the allow-list is empty")
    if sender not in expected.allow:
        raise _NoWordError(f"{sender} is not on the allow-list")
    if reply.doubts:
        raise _NoWordError(f"the mail service doubts its sender: {', '.join(reply.doubts)}")
    return sender


def _command(reply: Reply) -> tuple[str, str]:
    """Return the name of the one command in a reply's own words, and what follows it."""
    if not reply.text.strip():
        raise _NoWordError("it has no plain text, only HTML" if reply.html else "it is empty")
    if len(reply.text) > TEXT_LIMIT:
        raise _NoWordError("it is too long")
    lines = own_words(reply.text).splitlines()
    starts = [number for number, line in enumerate(lines) if _COMMAND.match(line.strip())]
    if not starts:
        raise _NoWordError("it holds no command of its own (/approve, /reject or /fix at the start of a line)")
    if len(starts) > 1:
        raise _NoWordError("it holds more than one command")
    name, rest = _first_word("\n".join(lines[starts[0] :]).strip())
    return name.removeprefix("/").lower(), rest


def _check_token(text: str, expected: Expectation) -> str:
    """Return what follows the token."""
    token, rest = _first_word(text)
    if not TOKEN.fullmatch(token) or not hmac.compare_digest(token_digest(token), expected.token_sha256):
        raise _NoWordError("the token is missing or is not this notice's")
    return rest


def _complete(name: str, text: str, sender: str, expected: Expectation) -> Accepted:
    match name:
        case "reject":
            return Accepted("reject", _clean(text), sender)
        case "fix":
            note = _clean(text)
            if not note:
                raise _NoWordError("/fix needs a note: what is to be done differently")
            return Accepted("fix", note, sender)
        case "approve":
            named, rest = _first_word(text)
            if not _SHA.fullmatch(named) or not expected.head_sha.startswith(named):
                raise _NoWordError("/approve does not name the commit that was judged")
            if expected.no_approval:
                raise _NoWordError(f"this commit can't be approved: {expected.no_approval}")
            return Accepted("approve", _clean(rest), sender)
        case _:
            raise _NoWordError(f"/{name[:40]} is no command")


def _first_word(text: str) -> tuple[str, str]:
    """Return the first word and the rest."""
    match = _WORD.match(text)
    return (match[0], text[match.end() :].strip()) if match else ("", text)


def own_words(text: str) -> str:
    """Return a reply without what it quotes and without its signature.

    What is cut is only ever less to find a command in. A quotation in a form that is not known stays, and its commands
    make the reply ambiguous, which is refused.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept: list[str] = []
    for number, line in enumerate(lines):
        bare = line.strip()
        if line == _SIGNATURE or _QUOTE_LINES.match(bare):
            break
        if any(
            head.match("\n".join([bare, *lines[number + 1 : number + 1 + more]]).strip())
            for head in _QUOTE_HEADS
            for more in range(3)
        ):
            break
        if not bare.startswith((">", "|")):
            kept.append(line)
    return "\n".join(kept)


def sole_address(header: str) -> str | None:
    """Return the one address of a From header, in lower case; None when there is none, several, or a trick."""
    if any(unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} for char in header):
        return None
    found = getaddresses([header])
    if len(found) != 1:
        return None
    address = found[0][1].lower()
    # the whole header may hold one @-address: `"boss@x" <evil@y>` is read differently by different programs
    return address if _ADDRESS.fullmatch(address) and len(_ADDRESS.findall(header)) == 1 else None


def _clean(text: str) -> str:
    """Return text without characters that a terminal or a prompt would act on."""
    kept = "".join(char if char in "\n\t" or unicodedata.category(char)[0] != "C" else " " for char in text)
    return kept.strip()[:NOTE_LIMIT]
