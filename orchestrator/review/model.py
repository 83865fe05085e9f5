"""One chat completion through the gate's socket, within a deadline. Standard library only.

The socket is the identity: no key is sent. The header ``X-School-Bead`` lets the gate count the call for its bead.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import math
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from orchestrator.errors import ModelCallError
from orchestrator.review.visible import visible_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RESPONSE_LIMIT: Final = 8 << 20  # bytes
TRIES: Final = 5  # answers of 429 or 5xx before the model counts as failing
_SHORTEST_PAUSE: Final = 0.2  # seconds, whatever Retry-After says
_FIRST_PAUSE: Final = 0.5  # seconds; doubled at each further try
_LONGEST_PAUSE: Final = 20.0
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_SOCKET_PATH_LIMIT: Final = 100  # bytes; the kernel allows 107


@dataclass(frozen=True, slots=True)
class Usage:
    """What the calls of one review took. ``calls`` counts answered completions."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer."""

    text: str
    usage: Usage
    model: str = ""  # as the upstream names it


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


class ModelClient(Protocol):
    """Whatever answers a chat. Tests and the synchronous fallback bring their own."""

    def complete(self, model: str, messages: Sequence[Message], *, bead: str, deadline: float) -> Completion:
        """Return the answer before ``deadline`` (monotonic seconds).

        Raises:
            ModelCallError: no usable answer came.
        """
        ...


class GateModel:
    """The model behind a gate socket.

    429 and 5xx are tried again a few times, a lost connection until the deadline (the gate is being restarted), each
    time only if the pause (Retry-After, or an exponential one) ends before the deadline. Anything else, a refusal of
    the gate above all, fails at once.
    """

    def __init__(self, socket_path: str | Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._socket_path = str(socket_path)
        self._sleep = sleep

    def complete(self, model: str, messages: Sequence[Message], *, bead: str, deadline: float) -> Completion:
        """See ``ModelClient.complete``."""
        body = json.dumps(
            {"model": model, "stream": False, "messages": [{"role": m.role, "content": m.content} for m in messages]}
        ).encode()
        backoff = _FIRST_PAUSE
        answers = 0
        while True:
            try:
                return self._once(body, bead, deadline)
            except _RetryableError as failure:
                answers += failure.error.status != 0
                pause = failure.retry_after
                if pause is None:
                    pause = backoff * random.uniform(0.75, 1.25)  # noqa: S311 - jitter
                    backoff = min(_LONGEST_PAUSE, 2 * backoff)
                pause = max(_SHORTEST_PAUSE, pause)
                if answers >= TRIES or time.monotonic() + pause >= deadline:
                    raise failure.error from None
                self._sleep(pause)

    def _once(self, body: bytes, bead: str, deadline: float) -> Completion:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "X-School-Bead": bead}
        left = deadline - time.monotonic()
        if left <= 0:
            raise ModelCallError("The time for this review was used up before the model was asked.")
        try:
            with _connection(self._socket_path, left) as (connection, expired):
                try:
                    connection.request("POST", "/v1/chat/completions", body=body, headers=headers)
                    response = connection.getresponse()
                    raw = response.read(RESPONSE_LIMIT + 1)
                except (OSError, http.client.HTTPException) as error:
                    # the socket's own timeout may come a moment before the timer
                    if expired.is_set() or time.monotonic() >= deadline:
                        raise ModelCallError(f"The model did not answer within {left:.0f} s.") from None
                    raise _connection_error(error) from None
                if expired.is_set():  # a body without a length ends silently when the connection is shut down
                    raise ModelCallError(f"The model did not answer within {left:.0f} s.")
        except OSError as error:
            raise _connection_error(error) from None
        if response.status != http.client.OK:
            raise _refusal(response, raw)
        if len(raw) > RESPONSE_LIMIT:
            raise ModelCallError(f"The model's response is larger than {RESPONSE_LIMIT} bytes.")
        return _completion(raw)


class _RetryableError(Exception):
    def __init__(self, error: ModelCallError, retry_after: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.retry_after = retry_after


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, unix_socket: socket.socket) -> None:
        super().__init__("gate")
        self.sock = unix_socket

    def connect(self) -> None:
        """Do nothing: the socket is connected already, and a closed one must not become a TCP connection."""


@contextlib.contextmanager
def _connection(path: str, seconds: float) -> Iterator[tuple[_UnixConnection, threading.Event]]:
    """Connect, and shut the connection down after ``seconds``, however slowly the other side drips."""
    expired = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix_socket:
        unix_socket.settimeout(seconds)
        _connect(unix_socket, path)

        def expire() -> None:
            expired.set()
            with contextlib.suppress(OSError):  # closed in this very moment
                unix_socket.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        connection = _UnixConnection(unix_socket)
        try:
            yield connection, expired
        finally:
            timer.cancel()
            connection.close()


def _connect(unix_socket: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT:
        unix_socket.connect(path)
        return
    folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        unix_socket.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
    finally:
        os.close(folder)


def _connection_error(error: Exception) -> _RetryableError:
    return _RetryableError(
        ModelCallError(
            f"The gate did not answer: {visible_line(str(error)) or type(error).__name__}.",
            next_step="Look at `school status`: is the gate healthy?",
        )
    )


def _refusal(response: http.client.HTTPResponse, raw: bytes) -> Exception:
    status = response.status
    code, message = _error_body(raw)
    error = ModelCallError(
        f"The model call was answered with {status}{f' ({code})' if code else ''}: {message or 'no reason given'}.",
        status=status,
        code=code,
    )
    if status == _TOO_MANY or status >= _SERVER_ERROR:
        return _RetryableError(error, _retry_after(response.getheader("Retry-After")))
    return error


def _error_body(raw: bytes) -> tuple[str, str]:
    try:
        body = json.loads(raw[: 1 << 20])
    except (ValueError, RecursionError):
        return "", visible_line(raw[:1000].decode("utf-8", errors="replace"))
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return visible_line(str(error.get("code") or ""), 60), visible_line(str(error.get("message") or ""))
    return "", visible_line(str(error or ""))


def _retry_after(value: str | None) -> float | None:
    """Return seconds from a Retry-After header, which holds seconds or a date (RFC 9110)."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)


def _completion(raw: bytes) -> Completion:
    try:
        body: Any = json.loads(raw)
        choice = body["choices"][0]
        content = choice["message"]["content"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError):
        raise ModelCallError("The model's response is not a chat completion.") from None
    if isinstance(content, list):  # some upstreams answer in parts
        content = "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    if not isinstance(content, str):
        raise ModelCallError("The model's response holds no text.")
    if choice.get("finish_reason") == "length":
        raise ModelCallError("The model's answer was cut at its length limit.")
    usage = body.get("usage")
    return Completion(
        text=content,
        usage=Usage(1, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")),
        model=visible_line(str(body.get("model") or ""), 120),
    )


def _count(usage: object, key: str) -> int:
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
