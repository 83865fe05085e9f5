"""The light agent's model call: chat completions over the gate's Unix socket, with retries.

No key is sent: the socket is the identity.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BODY = 32 * 1024 * 1024
MAX_ATTEMPTS = 8
MAX_BACKOFF = 30.0  # seconds
MAX_RETRY_AFTER = 120.0  # a longer wait is not worth the leaf's time: it counts as a refusal to serve
CALL_TIMEOUT = 600.0
DENIED = frozenset({401, 402, 403, 404})
RETRIED_CLIENT_ERRORS = frozenset({408, 409, 425, 429})
GATE_STATUS = {"budget_exhausted": "budget_exhausted", "deadline": "timed_out"}  # gate's code -> our status


class ModelError(Exception):
    """The model can't be used any more. ``status`` is the outcome that follows."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class ContextOverflowError(Exception):
    """The conversation is too long for the model: it can be tried again with a shorter one."""


class _TransientError(Exception):
    """Worth another attempt, after ``retry_after`` seconds when the server named them."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class ToolCall:
    """One tool call of a reply; ``arguments`` is what the model wrote, perhaps not JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """One answer of the model."""

    text: str
    calls: list[ToolCall]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("gate", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket; called by http.client."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Model:
    """A model alias behind the gate.

    Args:
        path: The gate's socket.
        name: The alias.
        ends_at: Monotonic time at which no call may wait any longer.
        warn: Told of each retry.
        sleep: For tests.
    """

    def __init__(
        self,
        path: str,
        name: str,
        *,
        ends_at: float,
        warn: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._name = name
        self._ends_at = ends_at
        self._warn = warn
        self._sleep = sleep

    def complete(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        """Ask once, retrying what may pass.

        Raises:
            ModelError: Refused, out of attempts, or out of time.
            ContextOverflowError: The messages are too long for the model.
        """
        body = {"model": self._name, "messages": messages, "tools": tools, "stream": False}
        data = json.dumps(body).encode("ascii")
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return self._ask(data)
            except _TransientError as error:
                pause = _backoff(attempt) if error.retry_after is None else error.retry_after
                if attempt == MAX_ATTEMPTS:
                    raise ModelError("failed", f"the model did not answer in {attempt} attempts: {error}") from error
                if pause > MAX_RETRY_AFTER:
                    raise ModelError("failed", f"the model asks to wait {pause:.0f} s: {error}") from error
                if time.monotonic() + pause >= self._ends_at:
                    raise ModelError("timed_out", f"no time left to try the model again: {error}") from error
                self._warn(f"model call failed ({error}); attempt {attempt + 1} in {pause:.1f} s")
                self._sleep(pause)
        raise AssertionError("unreachable")

    def _ask(self, data: bytes) -> Reply:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise ModelError("timed_out", "the time limit was reached")
        connection = UnixConnection(self._path, timeout=min(CALL_TIMEOUT, left))
        try:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request("POST", "/v1/chat/completions", body=data, headers=headers)
            response = connection.getresponse()
            body = response.read(MAX_BODY)
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if response.status == 200:
            return parse_reply(body)
        raise _classify(response.status, body, response.getheader("Retry-After"))


def parse_reply(body: bytes) -> Reply:
    """Read a chat completion, forgiving what providers get wrong.

    Raises:
        _TransientError: It is not a chat completion at all.
    """
    try:
        parsed = json.loads(body)
        choice = parsed["choices"][0]
        message = choice["message"]
        content = message.get("content")
        calls = [
            ToolCall(
                id=str(call.get("id") or f"call_{index}"),
                name=str(call["function"].get("name") or ""),
                arguments=_as_text(call["function"].get("arguments")),
            )
            for index, call in enumerate(message.get("tool_calls") or [])
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _TransientError("the answer is not a chat completion") from error
    usage = parsed.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Reply(
        text=_content_text(content),
        calls=_with_unique_ids(calls),
        finish_reason=str(choice.get("finish_reason") or ""),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # content parts
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return ""


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})


def _with_unique_ids(calls: list[ToolCall]) -> list[ToolCall]:
    seen: set[str] = set()
    unique: list[ToolCall] = []
    for index, call in enumerate(calls):
        call_id = f"{call.id}_{index}" if call.id in seen else call.id
        seen.add(call_id)
        unique.append(ToolCall(call_id, call.name, call.arguments))
    return unique


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _backoff(attempt: int) -> float:
    return min(MAX_BACKOFF, 0.5 * 2.0 ** (attempt - 1)) * random.uniform(0.8, 1.2)  # noqa: S311 - jitter


def _classify(status: int, body: bytes, retry_after: str | None) -> Exception:
    """Turn an HTTP error into what the loop does about it."""
    kind, code, message = _error_fields(body)
    text = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status in RETRIED_CLIENT_ERRORS or status >= 500:
        return _TransientError(text, parse_retry_after(retry_after))
    if kind == "school_gate" and code in GATE_STATUS:
        return ModelError(GATE_STATUS[code], message or code)
    if status in DENIED:
        return ModelError("model_denied", text)
    if status in (400, 413) and (code == "context_length_exceeded" or "context length" in message.lower()):
        return ContextOverflowError(text)
    return ModelError("failed", f"the model refused the request ({text})")


def _error_fields(body: bytes) -> tuple[str, str, str]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        return "", "", body[:300].decode("utf-8", "replace").strip()
    if not isinstance(error, dict):
        return "", "", str(error)[:300]
    return str(error.get("type") or ""), str(error.get("code") or ""), str(error.get("message") or "")[:300]


def parse_retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number or an HTTP date; None when absent or unreadable."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - time.time())
