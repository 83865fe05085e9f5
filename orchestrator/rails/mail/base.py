"""What the school asks of a mail service, and what it gets from one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TEXT_LIMIT = 200_000  # characters of a reply that are looked at


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A mail to be sent. The same ``key`` sent twice is one mail."""

    to: str
    subject: str
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A mail that was sent: its id and its thread's."""

    message_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A mail that came in.

    ``sender`` is the From header as it came; ``text`` the plain text (empty when there is none); ``html`` whether there
    is an HTML part; ``automatic`` whether a program sent it; ``doubts`` what the service says against its sender.
    """

    message_id: str
    thread_id: str
    sender: str
    text: str = ""
    html: bool = False
    automatic: bool = False
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Incoming:
    """What came in, oldest first, and what could not be read."""

    replies: tuple[Reply, ...]
    problems: tuple[str, ...] = ()


class Mailer(Protocol):
    """A mail service. Its methods raise MailError when it refuses, fails or does not answer."""

    name: str

    def send(self, mail: Outgoing) -> Sent:
        """Send a mail that begins a thread."""

    def incoming(self, threads: Collection[str], *, since: float) -> Incoming:
        """Return the mails of these threads that others wrote, and since ``since`` (epoch) those outside of any."""

    def answer(self, reply: Reply, text: str) -> None:
        """Answer a mail, to its sender alone, in its thread."""

    def close(self) -> None:
        """Let go of connections."""


_METHOD = re.compile(r"\b(dmarc|spf|dkim)\s*=\s*(\w+)", re.IGNORECASE)


def signs(headers: Mapping[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Return whether a mail is automatic, and what speaks against its sender, from its headers.

    A header can be forged; so nothing here speaks *for* a sender. A failed DMARC counts always, a failed SPF or DKIM
    where no DMARC passed (forwarding breaks them).
    """
    low = {name.lower(): value for name, value in headers.items()}
    automatic = (
        low.get("auto-submitted", "no").strip().lower() != "no"
        or low.get("precedence", "").strip().lower() in {"bulk", "junk", "list", "auto_reply"}
        or low.get("return-path", "x").strip() == "<>"
        or any(name in low for name in ("x-autoreply", "x-autorespond", "list-id"))
    )
    results = {(m[1].lower(), m[2].lower()) for m in _METHOD.finditer(low.get("authentication-results", ""))}
    passed = ("dmarc", "pass") in results
    failed = sorted(
        f"{method}={result}"
        for method, result in results
        if result in {"fail", "permerror"} and (method == "dmarc" or not passed)
    )
    return automatic, tuple(failed)
