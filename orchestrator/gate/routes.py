"""Which requests may pass, and what of them. Everything that is not named here is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs, web

if TYPE_CHECKING:
    from collections.abc import Mapping

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
MODELS = "/v1/models"

ALLOWED = frozenset(
    {("POST", CHAT), ("POST", RESPONSES), ("POST", MESSAGES), ("POST", COUNT_TOKENS), ("GET", MODELS)},
)
BODY_LIMIT = 32 << 20
HEADER_COUNT_LIMIT = 100
_REQUEST_HEADERS = ("User-Agent", "Anthropic-Version", "Anthropic-Beta", "OpenAI-Beta")
_RESPONSE_HEADERS = ("Retry-After", "X-Request-Id", "Request-Id")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request does not pass. ``stopped`` is the reason kept in the grant's usage, where it ends a run."""

    status: int
    code: str
    message: str
    stopped: str | None = None
    retry_after: int | None = None
    model: str | None = None  # that was asked for, where it is known

    def response(self) -> web.Response:
        """Return the answer that the client gets."""
        response = web.json_response(self.body(), status=self.status)
        if self.retry_after is not None:
            response.headers[hdrs.RETRY_AFTER] = str(self.retry_after)
        return response

    def body(self) -> dict[str, Any]:
        """Return the error in the shape that OpenAI's and Anthropic's clients both read."""
        return {"type": "error", "error": {"type": "school_gate", "code": self.code, "message": self.message}}


def check(request: web.BaseRequest) -> Refusal | None:
    """Return why the request line or the headers forbid a request, or None.

    The path is compared as it was sent: an encoded, absolute or dotted form of an allowed path is another path. A
    query is dropped on the way (Claude Code sends ``?beta=true``), so it can't steer anything upstream.
    """
    path = request.raw_path.partition("?")[0]
    if (request.method, path) not in ALLOWED:
        return Refusal(404, "route_not_allowed", f"{request.method} {path[:200]} is not a model route of this gate.")
    if hdrs.UPGRADE in request.headers:
        return Refusal(404, "route_not_allowed", "This gate does not switch protocols.")
    if len(request.headers) > HEADER_COUNT_LIMIT:
        return Refusal(431, "too_many_headers", f"More than {HEADER_COUNT_LIMIT} headers.")
    length = request.content_length
    if length is not None and length > BODY_LIMIT:
        return too_large()
    return None


def too_large() -> Refusal:
    """Return the refusal of a body over the limit."""
    return Refusal(413, "body_too_large", f"The body is larger than {BODY_LIMIT >> 20} MiB.")


def upstream_headers(headers: Mapping[str, str], *, key: str, stream: bool) -> dict[str, str]:
    """Return the headers of the call upstream: a few of the client's, the grant's key, nothing else.

    OmniRoute takes a body for a stream unless the Accept header says otherwise (FACTS), so it is always set here.
    """
    kept = {name: headers[name] for name in _REQUEST_HEADERS if name in headers}
    return kept | {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if stream else "application/json",
        "Accept-Encoding": "identity",  # the meter reads what passes
    }


def client_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the answer to the client."""
    kept = {name: headers[name] for name in _RESPONSE_HEADERS if name in headers}
    kept["Content-Type"] = headers.get("Content-Type", "application/octet-stream")
    limits = {name: value for name, value in headers.items() if "ratelimit" in name.lower()}
    return kept | limits
