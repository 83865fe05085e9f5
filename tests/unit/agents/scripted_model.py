"""A model on a Unix socket that says what a test wrote down, streamed or not; it keeps what it was asked."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def says(text: str = "", *calls: tuple[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A reply with text and tool calls; arguments that are a str are sent as they are."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for index, (name, given) in enumerate(calls)
        ]
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def fails(status: int, *, code: str = "", kind: str = "error", message: str = "no", **headers: str) -> Failure:
    """An HTTP error in the gate's or a provider's shape."""
    return Failure(status, {"error": {"type": kind, "code": code, "message": message}}, headers)


class Failure:
    def __init__(self, status: int, body: Any, headers: dict[str, str]) -> None:
        self.status, self.body, self.headers = status, body, headers


class Hangs:
    """Answers after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "rehearsal", "object": "model"}]}, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.server.owner.next_reply(body, dict(self.headers))
        if isinstance(reply, Hangs):
            time.sleep(reply.seconds)
            self.close_connection = True
        elif isinstance(reply, Failure):
            self._send(reply.status, reply.body, reply.headers)
        elif isinstance(reply, bytes):
            self._raw(200, reply, {"Content-Type": "application/json"})
        elif body.get("stream"):
            self._raw(200, sse(reply), {"Content-Type": "text/event-stream"})
        else:
            self._send(200, reply, {})

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        self._raw(status, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})

    def _raw(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class ScriptedModel:
    """Replies in order; the last one again and again."""

    def __init__(self, path: Path, replies: list[Any]) -> None:
        self.path = path
        self.replies = replies
        self.requests: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._server = _Server(str(path), _Handler)
        self._server.owner = self
        path.chmod(0o777)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def next_reply(self, body: dict[str, Any], headers: dict[str, str]) -> Any:
        with self._lock:
            self.requests.append({"body": body, "headers": headers})
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.path.unlink(missing_ok=True)


def sse(reply: dict[str, Any]) -> bytes:
    """The same reply as a stream of chunks."""
    choice = reply["choices"][0]
    message = choice["message"]
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    delta: dict[str, Any] = {"role": "assistant", "content": message.get("content") or ""}
    if message.get("tool_calls"):
        delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(message["tool_calls"])]
    chunks = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**base, "choices": [], "usage": reply["usage"]},
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
