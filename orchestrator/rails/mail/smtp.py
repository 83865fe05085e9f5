"""Any mailbox over SMTP and IMAP, behind the same protocol as AgentMail. Standard library.

A notice's thread is its Message-ID: an answer belongs to it when In-Reply-To or References names it. Mails are read,
never moved, marked or deleted: the folder is opened read-only.
"""

from __future__ import annotations

import contextlib
import email
import email.policy
import imaplib
import re
import smtplib
import ssl
import time
from dataclasses import dataclass
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from orchestrator.errors import ConfigError, MailError
from orchestrator.rails.mail.base import TEXT_LIMIT, Incoming, Outgoing, Reply, Sent, signs
from orchestrator.rails.mail.judge import sole_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

MAILS = 500  # newest ones that are looked at in one round
SIZE_LIMIT = 2_000_000  # bytes of a mail that is fetched
_ID = re.compile(r"<[^<>\s]+>")
_PORTS = {"smtps": 465, "smtp": 587, "imaps": 993, "imap": 143}


@dataclass(frozen=True, slots=True)
class Place:
    """A server, as an URL names it."""

    scheme: str
    host: str
    port: int
    user: str
    folder: str = "INBOX"


def place(url: str, schemes: tuple[str, ...], setting: str) -> Place:
    """Read an URL such as ``imaps://me%40example.org@mail.example.org/INBOX``.

    Raises:
        ConfigError: it is none, or it holds a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in schemes or not parts.hostname:
        raise ConfigError(
            f"{setting} is no address of a server.", next_step=f"Write {schemes[0]}://USER@HOST:PORT; docs/mail.md."
        )
    if parts.password:
        raise ConfigError(
            f"{setting} holds a password.",
            next_step="Put it into <home>/school/keys/mail-password or SCHOOL_MAIL_PASSWORD.",
        )
    folder = unquote(parts.path.strip("/")) or "INBOX"
    return Place(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], unquote(parts.username or ""), folder)


class SmtpMailer:
    """A mailbox: SMTP to send, IMAP to read."""

    name = "smtp"

    def __init__(
        self, smtp: Place, imap: Place, *, address: str, password: str, insecure: bool = False, timeout: float = 30.0
    ) -> None:
        """Nothing is asked yet.

        Args:
            smtp: Where mail leaves by; ``smtp`` means STARTTLS, ``smtps`` TLS from the start.
            imap: Where mail is read.
            address: The mailbox's own address.
            password: Of both servers.
            insecure: Whether ``smtp`` and ``imap`` may do without encryption: for a server on this host.
            timeout: Seconds for one step.
        """
        self._smtp = smtp
        self._imap = imap
        self._address = address
        self._password = password
        self._insecure = insecure
        self._timeout = timeout

    def send(self, mail: Outgoing) -> Sent:
        """Send a mail. Its Message-ID is made from its key: a mailbox shows a repeat as the same mail."""
        message_id = f"<school-{mail.key}@{self._address.rpartition('@')[2]}>"
        message = self._message(mail.to, mail.subject, mail.text, message_id)
        self._deliver(message)
        return Sent(message_id, message_id)

    def incoming(self, threads: Collection[str], *, since: float) -> Incoming:
        """Read what came since the day of ``since``."""
        replies: list[Reply] = []
        problems: list[str] = []
        day = time.strftime("%d-%b-%Y", time.gmtime(since))  # IMAP knows days only
        with self._mailbox() as box:
            found = _ok(box.uid("SEARCH", "SINCE", day), "SEARCH")[0] or b""
            uids = found.split()
            if len(uids) > MAILS:
                problems.append(f"{len(uids)} mails since {day}: only the newest {MAILS} were looked at")
            for uid in uids[-MAILS:]:
                reply = self._read(box, uid.decode("ascii"), threads)
                if reply is not None:
                    replies.append(reply)
        return Incoming(tuple(replies), tuple(problems))

    def answer(self, reply: Reply, text: str) -> None:
        """Answer a mail, to its sender alone."""
        sender = sole_address(reply.sender)
        if sender is None:
            raise MailError("The mail to be answered has no sender that can be read.")
        message = self._message(sender, "Re: [school]", text, "")
        message["In-Reply-To"] = reply.message_id
        message["References"] = f"{reply.thread_id} {reply.message_id}"
        self._deliver(message)

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _message(self, to: str, subject: str, text: str, message_id: str) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self._address
        message["To"] = to
        message["Subject"] = " ".join(subject.split())
        message["Date"] = email.utils.localtime()
        message["Auto-Submitted"] = "auto-generated"  # so that no vacation program answers it
        if message_id:
            message["Message-ID"] = message_id
        message.set_content(text)
        return message

    def _deliver(self, message: EmailMessage) -> None:
        context = ssl.create_default_context()
        where = self._smtp
        try:
            if where.scheme == "smtps":
                server: smtplib.SMTP = smtplib.SMTP_SSL(where.host, where.port, timeout=self._timeout, context=context)
            else:
                server = smtplib.SMTP(where.host, where.port, timeout=self._timeout)
            with server:
                if where.scheme == "smtp" and (not self._insecure or server.has_extn("starttls")):
                    server.starttls(context=context)
                if where.user:
                    server.login(where.user, self._password)
                server.send_message(message)
        except smtplib.SMTPAuthenticationError as error:
            raise _refused("SMTP", where) from error
        except (OSError, smtplib.SMTPException) as error:
            raise _failed("SMTP", where, error) from error

    @contextlib.contextmanager
    def _mailbox(self) -> Iterator[imaplib.IMAP4]:
        where = self._imap
        context = ssl.create_default_context()
        box: imaplib.IMAP4 | None = None
        try:
            if where.scheme == "imaps":
                box = imaplib.IMAP4_SSL(where.host, where.port, ssl_context=context, timeout=self._timeout)
            else:
                box = imaplib.IMAP4(where.host, where.port, timeout=self._timeout)
                if not self._insecure or "STARTTLS" in box.capabilities:
                    box.starttls(context)
            try:
                box.login(where.user, self._password)
            except box.error as error:
                raise _refused("IMAP", where) from error
            _ok(box.select(_quoted(where.folder), readonly=True), "SELECT")
            yield box
        except (OSError, imaplib.IMAP4.error) as error:
            raise _failed("IMAP", where, error) from error
        finally:
            if box is not None:
                with contextlib.suppress(OSError, imaplib.IMAP4.error):
                    box.logout()

    def _read(self, box: imaplib.IMAP4, uid: str, threads: Collection[str]) -> Reply | None:
        """Return a mail as a reply; None for the school's own. The text is fetched only of one in a thread."""
        size = re.search(rb"RFC822\.SIZE (\d+)", b" ".join(_flat(box.uid("FETCH", uid, "(RFC822.SIZE)"))))
        head = email.message_from_bytes(
            _literal(box.uid("FETCH", uid, "(BODY.PEEK[HEADER])")), policy=email.policy.default
        )
        sender = _header(head, "From")
        message_id = next(iter(_ID.findall(_header(head, "Message-ID"))), f"<no-id-{uid}>")
        if sole_address(sender) == self._address.lower():
            return None
        named = _ID.findall(f"{_header(head, 'References')} {_header(head, 'In-Reply-To')}")
        thread = next((name for name in reversed(named) if name in threads), "")
        if not thread or not size or int(size[1]) > SIZE_LIMIT:
            return Reply(message_id, thread, sender, text="x" * (TEXT_LIMIT + 1) if thread else "")
        message = email.message_from_bytes(
            _literal(box.uid("FETCH", uid, "(BODY.PEEK[])")), policy=email.policy.default
        )
        automatic, doubts = signs(_headers(message))
        if len(message.get_all("From") or []) != 1:
            sender = ""  # several From lines: programs differ in which one they show
        return Reply(message_id, thread, sender, _plain_text(message), _has_html(message), automatic, doubts)


def _headers(message: EmailMessage) -> dict[str, str]:
    """Return the headers that say who sent a mail; all results of authentication together."""
    headers = {name: _header(message, name) for name in message.keys()}  # noqa: SIM118 - a message is no mapping
    results = [name for name in headers if name.lower() == "authentication-results"]
    if results:
        headers[results[0]] = " ".join(str(value) for value in message.get_all("Authentication-Results") or [])
    return headers


def _header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name, ""))
    except (ValueError, IndexError, AttributeError):  # a header that the parser trips over says nothing
        return ""


def _plain_text(message: EmailMessage) -> str:
    """Return the plain text part; "" when there is none that can be read."""
    part = message.get_body(preferencelist=("plain",))
    if part is None:
        return ""
    try:
        content = part.get_content()
    except (LookupError, ValueError, AttributeError, KeyError):  # an unknown charset or a broken encoding
        return ""
    return content if isinstance(content, str) else ""


def _has_html(message: EmailMessage) -> bool:
    return message.get_body(preferencelist=("html",)) is not None


def _ok(answer: tuple[str, Sequence[Any]], what: str) -> Sequence[Any]:
    kind, data = answer
    if kind != "OK":
        raise MailError(f"IMAP, {what}: {kind} {b' '.join(_flat(answer))[:200].decode('utf-8', 'replace')}")
    return data


def _flat(answer: tuple[str, Sequence[Any]]) -> list[bytes]:
    found: list[bytes] = []
    for item in answer[1]:
        found += [part for part in (item if isinstance(item, tuple) else (item,)) if isinstance(part, bytes)]
    return found


def _literal(answer: tuple[str, Sequence[Any]]) -> bytes:
    return next((item[1] for item in answer[1] if isinstance(item, tuple) and len(item) > 1), b"")


def _quoted(folder: str) -> str:
    escaped = folder.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _refused(what: str, where: Place) -> MailError:
    return MailError(
        f"{what} at {where.host} refused the user {where.user!r} or the password.",
        next_step="Check the address and <home>/school/keys/mail-password.",
    )


def _failed(what: str, where: Place, error: Exception) -> MailError:
    return MailError(
        f"{what} at {where.host}:{where.port}: {type(error).__name__}: {error!s:.200}.",
        next_step="It is tried again at the next round.",
    )
