"""A local server that speaks the paths of AgentMail's REST API that the SDK 2.0.18 calls, with its behaviour:

newest page first and ascending inside a page, page tokens, idempotency keys, 409 for a key with another text, labels.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

INBOX = "school@agentmail.to"
KEY = "am_test_key"


class AgentMailServer:
    """Threads of one inbox, in memory."""

    def __init__(self) -> None:
        self.messages: list[dict] = []
        self.sent: dict[str, tuple[dict, dict]] = {}  # idempotency key -> request, answer
        self.requests: list[tuple[str, str]] = []
        self.page = 2  # messages a page: small, so that every test pages
        self.fail: list[tuple[int, dict]] = []  # (status, headers) of the next answers
        self.broken_threads: set[str] = set()
        self.loop = False  # never ends its pages
        self.strip: set[str] = set()  # fields that answers lack
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._handle(self, "GET", {})

            def do_POST(self) -> None:
                outer._handle(self, "POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def receive(self, sender: str, text: str | None, thread: str, **fields: object) -> str:
        """Let a mail come in; return its id."""
        labels = fields.pop("labels", ["received", "unread"])
        return self._add(
            **{"from": sender, "to": [INBOX], "text": text, "extracted_text": text, "thread_id": thread}
            | {"labels": labels, **fields}
        )["message_id"]

    def _add(self, **fields: object) -> dict:
        with self._lock:
            number = len(self.messages) + 1
            at = dt.datetime.now(dt.UTC).isoformat()
            message = {"inbox_id": INBOX, "message_id": f"<m{number}@agentmail>", "timestamp": at, "size": 1}
            message |= {"created_at": at, "updated_at": at, "number": number, **fields}
            self.messages.append(message)
            return message

    def _handle(self, handler: BaseHTTPRequestHandler, method: str, body: dict) -> None:
        parts = urlsplit(handler.path)
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append((method, parts.path))
        headers: dict = {}
        if self.fail:
            status, headers = self.fail.pop(0)
            answer: dict = {"name": "Error", "message": "told to fail"}
        elif handler.headers.get("Authorization") != f"Bearer {KEY}":
            status, answer = 403, {"name": "Forbidden"}
        else:
            status, answer = self._answer(method, path, query, body, handler.headers.get("Idempotency-Key"))
        raw = b"<html>" if answer is None else json.dumps(answer).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(raw)

    def _answer(self, method: str, path: list[str], query: dict, body: dict, key: str | None) -> tuple[int, dict]:  # noqa: PLR0911 - a table of paths
        if path[:3] != ["v0", "inboxes", INBOX]:
            return 404, {"name": "NotFoundError"}
        match method, path[3:]:
            case "POST", ["messages", "send"]:
                if key in self.sent:
                    before, answer = self.sent[key]
                    return (200, answer) if before == body else (409, {"name": "ConflictError"})
                message = self._add(
                    **{"from": f"School <{INBOX}>", "thread_id": f"t{len(self.messages) + 1}", "labels": ["sent"]}
                    | {name: body.get(name) for name in ("to", "subject", "text")}
                )
                answer = {"message_id": message["message_id"], "thread_id": message["thread_id"]}
                self.sent[key or message["message_id"]] = (body, answer)
                return 200, answer
            case "POST", ["messages", name, "reply"]:
                found = next(m for m in self.messages if m["message_id"] == name)
                message = self._add(
                    **{"from": f"School <{INBOX}>", "thread_id": found["thread_id"], "labels": ["sent"]}
                    | {"to": body["to"], "text": body["text"], "in_reply_to": name}
                )
                return 200, {"message_id": message["message_id"], "thread_id": message["thread_id"]}
            case "GET", ["threads", name]:
                found = [m for m in self.messages if m["thread_id"] == name]
                if name in self.broken_threads or not found:
                    return 404, {"name": "NotFoundError"}
                page, token = self._page(found, query)
                return 200, {"inbox_id": INBOX, "thread_id": name, "count": len(page), "messages": page} | token
            case "GET", ["messages"]:
                after = dt.datetime.fromisoformat(query["after"])
                since = [m for m in self.messages if dt.datetime.fromisoformat(m["timestamp"]) >= after]
                page, token = self._page(since, query)
                items = [{n: v for n, v in m.items() if n not in {"text", "extracted_text", "html"}} for m in page]
                return 200, {"count": len(items), "messages": items[::-1]} | token
        return 404, {"name": "NotFoundError"}

    def _page(self, found: list[dict], query: dict) -> tuple[list[dict], dict]:
        end = int(query.get("page_token") or len(found))
        start = max(0, end - self.page)
        page = [{name: value for name, value in m.items() if name not in self.strip} for m in found[start:end]]
        if self.loop:
            return page, {"next_page_token": str(end)}
        return page, {"next_page_token": str(start)} if start else {}
