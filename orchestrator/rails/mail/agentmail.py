"""AgentMail through its SDK (R-45). The SDK is an extra of this package (``mail``) and is imported when it is used."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ConfigError, MailError
from orchestrator.rails.mail.base import Incoming, Outgoing, Reply, Sent, signs
from orchestrator.rails.mail.judge import sole_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PAGES = 50  # of one listing; more are reported as a problem
PAGE = 50  # messages
DOUBTS = frozenset({"spam", "blocked", "unauthenticated", "trash"})
"""Labels with which AgentMail marks mail that it does not trust."""


class AgentMailer:
    """One inbox at AgentMail."""

    name = "agentmail"

    def __init__(
        self, inbox: str, api_key: str, *, url: str | None = None, timeout: float = 30.0, retries: int = 2
    ) -> None:
        """Nothing is asked yet.

        Args:
            inbox: The inbox's id, which is its address.
            api_key: The key.
            url: Address of the API, when it is not the SDK's own.
            timeout: Seconds for one call.
            retries: How often the SDK repeats a call that was refused for load (429) or failed on the far side.

        Raises:
            ConfigError: the SDK is not installed.
        """
        try:
            import agentmail  # noqa: PLC0415 - an extra, and slow to import
            import httpx  # noqa: PLC0415
            from agentmail.core.api_error import ApiError  # noqa: PLC0415
            from agentmail.environment import AgentMailEnvironment  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "AgentMail's SDK is not installed.", next_step="pip install 'agent-school[mail]'"
            ) from error
        self._inbox = inbox
        self._errors = (ApiError, httpx.HTTPError)
        self._options: Any = {"max_retries": retries, "timeout_in_seconds": int(timeout)}
        self._http = httpx.Client(timeout=timeout, follow_redirects=True)
        where: dict[str, Any] = {}
        if url:
            where["environment"] = AgentMailEnvironment(http=url.rstrip("/"), websockets=url.rstrip("/"))
        self._client = agentmail.AgentMail(api_key=api_key, httpx_client=self._http, **where)

    def send(self, mail: Outgoing) -> Sent:
        """Send a mail."""
        with self._calling("send"):
            sent = self._client.inboxes.messages.send(
                self._inbox,
                to=[mail.to],
                subject=mail.subject,
                text=mail.text,
                labels=["school"],
                idempotency_key=mail.key,
                request_options=self._options,
            )
            return Sent(_given(sent.message_id), _given(sent.thread_id))

    def incoming(self, threads: Collection[str], *, since: float) -> Incoming:
        """Read the threads, and list what came outside of them (its text is not fetched: it can't count)."""
        replies: dict[str, Reply] = {}
        problems: list[str] = []
        for thread in threads:
            try:
                replies |= {reply.message_id: reply for reply in self._thread(thread)}
            except MailError as error:  # one thread that can't be read does not hide the others
                problems.append(f"thread {thread[:80]}: {error.message}")
        if problems and len(problems) == len(threads):
            raise MailError(f"AgentMail gives none of the threads: {problems[0]}")
        try:
            for reply in self._strays(threads, since):
                replies.setdefault(reply.message_id, reply)
        except MailError as error:
            problems.append(f"mail outside the threads: {error.message}")
        return Incoming(tuple(replies.values()), tuple(problems))

    def answer(self, reply: Reply, text: str) -> None:
        """Answer a mail, to its sender alone."""
        sender = sole_address(reply.sender)
        if sender is None:
            raise MailError("The mail to be answered has no sender that can be read.")
        with self._calling("reply"):
            self._client.inboxes.messages.reply(
                self._inbox, reply.message_id, to=[sender], text=text, request_options=self._options
            )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _thread(self, thread: str) -> list[Reply]:
        """Return a thread's messages by others, oldest first; the service gives the newest page first."""
        pages: list[list[Reply]] = []
        token: str | None = None
        for _ in range(PAGES):
            with self._calling("threads.get"):
                page = self._client.inboxes.threads.get(
                    self._inbox, thread, limit=PAGE, page_token=token, request_options=self._options
                )
                pages.append([reply for message in page.messages if (reply := self._reply(message))])
                token = page.next_page_token
            if not token:
                return [reply for page_ in reversed(pages) for reply in page_]
        raise MailError(f"it has more than {PAGES} pages")

    def _strays(self, threads: Collection[str], since: float) -> list[Reply]:
        found: list[Reply] = []
        token: str | None = None
        after = dt.datetime.fromtimestamp(since, dt.UTC)
        for _ in range(PAGES):
            with self._calling("messages.list"):
                page = self._client.inboxes.messages.list(
                    self._inbox, limit=PAGE, page_token=token, after=after, request_options=self._options
                )
                found += [
                    Reply(reply.message_id, reply.thread_id, reply.sender)
                    for message in page.messages
                    if str(message.thread_id) not in threads and (reply := self._reply(message))
                ]
                token = page.next_page_token
            if not token:
                break
        return found[::-1]

    def _reply(self, message: Any) -> Reply | None:
        """Return a message as a reply; None for the school's own."""
        labels = {str(label).lower() for label in message.labels or ()}
        sender = _given(message.from_)
        if "sent" in labels or sole_address(sender) == self._inbox.lower():
            return None
        headers = {str(name): str(value) for name, value in (message.headers or {}).items()}
        automatic, doubts = signs(headers)
        # extracted_text leaves the quotation out; the whole text stands in where the service extracted nothing
        text = getattr(message, "extracted_text", None) or getattr(message, "text", None) or ""
        if not (getattr(message, "text", None) or "").strip():
            text = ""  # what was extracted comes from the HTML part then
        return Reply(
            message_id=_given(message.message_id),
            thread_id=_given(message.thread_id),
            sender=sender,
            text=text,
            html=bool(getattr(message, "html", None)),
            automatic=automatic,
            doubts=(*sorted(labels & DOUBTS), *doubts),
        )

    @contextlib.contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            status = getattr(error, "status_code", None)
            if status in {401, 403}:
                raise MailError(
                    f"AgentMail refused the key ({status}).", next_step="Check AGENTMAIL_API_KEY and the inbox's name."
                ) from error
            detail = f"status {status}" if status else f"{type(error).__name__}: {error}"
            raise MailError(
                f"AgentMail, {what}: {detail[:300]}.", next_step="It is tried again at the next round."
            ) from error
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            # the SDK does not validate: what lacks a field fails where the field is read
            raise MailError(f"AgentMail, {what}: an answer in another form than expected ({error}).") from error


def _given(value: Any) -> str:
    """Return a text that an answer must hold: the SDK does not check."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} where a text should be")
    return value
