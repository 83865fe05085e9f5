"""OmniRoute's client against a stand-in that keeps keys the way version 3.7.9 was seen to."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.errors import GatewayAuthError, GatewayError, GatewayUnavailableError
from orchestrator.gateway.omniroute import CACHE_SECONDS, OmniRoute


class StandIn(ThreadingHTTPServer):
    """Keys, login and log; ``open_door`` makes it let in a caller without a key."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.keys = {}
        self.sessions = set()
        self.requests = []
        self.open_door = False
        self.refuse = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def _answer(self, status, body, cookie=None):
        data = json.dumps(body).encode()
        self.send_response(status)
        if cookie:
            self.send_header("Set-Cookie", f"auth={cookie}; Path=/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self):  # noqa: PLR0911 - one return a route
        server = self.server
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or "null")
        server.requests.append((self.command, self.path, body))
        if server.refuse and self.path.startswith(server.refuse):
            return self._answer(500, {"error": "broken"})
        if self.path == "/api/monitoring/health":
            return self._answer(200, {"version": "3.7.9"})
        if self.path == "/api/auth/login":
            if body["password"] != "right":
                return self._answer(401, {})
            server.sessions.add("s")
            return self._answer(200, {}, cookie="s")
        secret = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.path == "/v1/chat/completions":
            known = any(key["key"] == secret for key in server.keys.values())
            return self._answer(200 if known or server.open_door else 401, {})
        if self.headers.get("Cookie") != "auth=s" or not server.sessions:
            return self._answer(403 if secret else 401, {})
        return self._admin(server, body)

    def _admin(self, server, body):
        _, _, _, *rest = self.path.split("/")
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if self.path == "/api/keys" and self.command == "POST":
            number = str(len(server.keys) + 1)
            server.keys[number] = {
                "id": number,
                "name": body["name"],
                "key": f"sk-{number}",
                "isActive": True,
                "createdAt": now,
                "lastUsedAt": None,
            }
            return self._answer(201, server.keys[number])
        if self.path == "/api/keys":
            return self._answer(200, {"keys": list(server.keys.values())})
        if rest and self.path.startswith("/api/keys/"):
            if rest[0] not in server.keys:
                return self._answer(404, {"error": "Key not found"})
            if self.command == "DELETE":
                del server.keys[rest[0]]
            else:
                server.keys[rest[0]].update(body)
            return self._answer(200, {})
        if self.path.startswith("/api/usage/call-logs"):
            return self._answer(200, [{"apiKeyName": "bead-1"}, {"apiKeyName": "bead-10"}])
        return self._answer(200, {})

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - the library's names


@pytest.fixture
def stand_in():
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def omniroute(stand_in):
    client = OmniRoute(stand_in.url, "right")
    yield client
    client.close()


def age(stand_in, seconds):
    then = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat().replace("+00:00", "Z")
    for key in stand_in.keys.values():
        key["lastUsedAt"] = then


def test_a_used_key_is_deactivated_at_once_and_deleted_only_when_no_cache_knows_it(stand_in, omniroute):
    # deleted too early it would work again for up to a minute: seen on 3.7.9
    key = omniroute.create_key("bead-1", models=["m"], daily_usd=1.5)
    assert stand_in.keys[key.id]["allowedModels"] == ["m"]
    age(stand_in, 5)
    omniroute.revoke_key(omniroute.keys("bead-1")[0])
    assert stand_in.keys[key.id]["isActive"] is False
    assert omniroute.sweep_keys("bead-") == 0
    age(stand_in, CACHE_SECONDS + 5)
    assert omniroute.sweep_keys("other-") == 0
    assert omniroute.sweep_keys("bead-") == 1
    assert stand_in.keys == {}


def test_a_key_that_was_not_used_lately_is_deleted_when_revoked(stand_in, omniroute):
    omniroute.create_key("bead-1")
    age(stand_in, CACHE_SECONDS + 5)
    key = omniroute.keys("bead-1")[0]
    omniroute.revoke_key(key)
    omniroute.revoke_key(key)  # gone already
    assert stand_in.keys == {}


def test_a_key_in_use_is_never_swept(stand_in, omniroute):
    omniroute.create_key("bead-1")
    age(stand_in, CACHE_SECONDS + 5)
    assert omniroute.sweep_keys("bead-") == 0
    assert len(stand_in.keys) == 1


def test_a_key_that_could_not_be_limited_is_revoked(stand_in, omniroute):
    stand_in.refuse = "/api/usage/budget"
    with pytest.raises(GatewayError):
        omniroute.create_key("bead-1", daily_usd=1.0)
    assert [key["isActive"] for key in stand_in.keys.values()] == [False]


def test_a_session_that_ended_is_renewed(stand_in, omniroute):
    omniroute.keys()
    stand_in.sessions.clear()
    assert omniroute.keys() == []
    assert [path for _, path, _ in stand_in.requests].count("/api/auth/login") == 2


def test_a_session_is_kept_for_the_next_process_in_a_file_of_its_own(stand_in, tmp_path):
    kept = tmp_path / "session.json"
    for _ in range(2):
        client = OmniRoute(stand_in.url, "right", session_file=kept)
        client.keys()
        client.close()
    assert [path for _, path, _ in stand_in.requests].count("/api/auth/login") == 1
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "right" not in kept.read_text()


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://elsewhere", "cookies": {"auth": "s"}}', '{"url": 1}'])
def test_a_kept_session_that_does_not_fit_is_made_anew(stand_in, tmp_path, text):
    kept = tmp_path / "session.json"
    kept.write_text(text)
    client = OmniRoute(stand_in.url, "right", session_file=kept)
    assert client.keys() == []
    client.close()
    stand_in.sessions.clear()  # and one that the gateway forgot, too
    client = OmniRoute(stand_in.url, "right", session_file=kept)
    assert client.keys() == []
    client.close()
    assert [path for _, path, _ in stand_in.requests].count("/api/auth/login") == 2


def test_a_wrong_password_is_said_and_not_tried_again(stand_in):
    client = OmniRoute(stand_in.url, "wrong")
    with pytest.raises(GatewayAuthError, match="refused the admin's password"):
        client.keys()
    client.close()
    assert len(stand_in.requests) == 1


def test_the_proof_passes_where_strangers_are_kept_out_and_leaves_no_key(stand_in, omniroute):
    omniroute.prove_auth()
    assert stand_in.keys == {}


def test_an_open_door_fails_the_proof(stand_in, omniroute):
    stand_in.open_door = True
    with pytest.raises(GatewayAuthError, match="a call without a key with 200 instead of 401"):
        omniroute.prove_auth()
    assert stand_in.keys == {}


def test_the_call_log_is_looked_through_again(omniroute):
    assert omniroute.call_log("bead-1") == [{"apiKeyName": "bead-1"}]


def test_health_is_waited_for(omniroute):
    assert omniroute.wait_healthy(5) == "3.7.9"
    nobody = OmniRoute("http://127.0.0.1:1", "x")
    with pytest.raises(GatewayUnavailableError, match="did not become healthy"):
        nobody.wait_healthy(0.2)
    nobody.close()


def test_a_keys_secret_is_not_in_its_repr(omniroute):
    assert "sk-" not in repr(omniroute.create_key("bead-1"))
