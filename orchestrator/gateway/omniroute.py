"""OmniRoute's management API, as version 3.7.9 speaks it: health, login, keys, call log."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

from orchestrator.errors import GatewayAuthError, GatewayError, GatewayUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TIMEOUT = (5.0, 30.0)  # connect, read (s)
CACHE_SECONDS = 180.0
"""OmniRoute keeps a key's validity for 60 s in several places. A key that is deleted meanwhile works again, without its
allow-list, even when it was deactivated before: so a used key is deactivated at once and deleted this much later."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as OmniRoute lists it; ``secret`` is known only when it was just made."""

    id: str
    name: str
    active: bool
    last_used: float  # epoch seconds; when it was made, if it never was
    secret: str = ""

    def __repr__(self) -> str:
        """Leave the secret out."""
        return f"ApiKey(id={self.id!r}, name={self.name!r}, active={self.active})"


class OmniRoute:
    """One OmniRoute. Sync; logs in when it is first needed, and again when the session has ended.

    Args:
        url: Its address from the host, without a path.
        password: The admin's password.
        session_file: Where the admin's session is kept between processes, 0600 beside the password. A login costs
            OmniRoute 0.2 to 0.4 s (it hashes the password), which every bead would pay.
    """

    def __init__(self, url: str, password: str, *, session_file: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._password = password
        self._session_file = session_file
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the environment must not see the admin's cookie
        self._logged_in = self._load_session()

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def wait_healthy(self, timeout: float = 60.0) -> str:
        """Wait until it answers; return its version.

        Raises:
            GatewayUnavailableError: it did not within ``timeout`` seconds.
        """
        ends = time.monotonic() + timeout
        reason = "no answer"
        while True:
            try:
                answer = self._session.get(f"{self.url}/api/monitoring/health", timeout=(2.0, 5.0))
                if answer.status_code == requests.codes.ok:
                    return str(answer.json().get("version", ""))
                reason = f"HTTP {answer.status_code}"
            except (requests.RequestException, ValueError) as error:
                reason = type(error).__name__
            if time.monotonic() >= ends:
                raise GatewayUnavailableError(
                    f"OmniRoute at {self.url} did not become healthy in {timeout:.0f} s ({reason}).",
                    next_step="school status shows the gateway's state; school logs omniroute its output.",
                )
            time.sleep(0.1)

    def login(self) -> None:
        """Log in as the admin.

        Raises:
            GatewayAuthError: the password is wrong, or too many wrong ones were tried.
        """
        answer = self._send("POST", "/api/auth/login", {"password": self._password})
        if answer.status_code != requests.codes.ok:
            raise GatewayAuthError(
                f"OmniRoute at {self.url} refused the admin's password (HTTP {answer.status_code}).",
                next_step="Name the right one: school gateway use URL --admin-password-file FILE. After several "
                "wrong tries OmniRoute refuses everybody for some minutes.",
            )
        self._logged_in = True
        self._save_session()

    def _load_session(self) -> bool:
        if self._session_file is None:
            return False
        try:
            saved = json.loads(self._session_file.read_bytes())
        except (OSError, ValueError):
            return False
        if not isinstance(saved, dict) or saved.get("url") != self.url or not isinstance(saved.get("cookies"), dict):
            return False
        for name, value in saved["cookies"].items():
            self._session.cookies.set(str(name), str(value))
        return True

    def _save_session(self) -> None:
        if self._session_file is None:
            return
        cookies = {cookie.name: cookie.value for cookie in self._session.cookies}
        temporary = self._session_file.with_name(f".{self._session_file.name}-{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump({"url": self.url, "cookies": cookies}, file)
        temporary.replace(self._session_file)

    def call(self, method: str, path: str, body: Any = None, *, missing_ok: bool = False) -> Any:
        """Make one management call and return its JSON; None for a 404 with ``missing_ok``.

        Raises:
            GatewayUnavailableError: it does not answer.
            GatewayAuthError: it does not let the admin in.
            GatewayError: any other refusal.
        """
        if not self._logged_in:
            self.login()
        answer = self._send(method, path, body)
        if answer.status_code in {requests.codes.unauthorized, requests.codes.forbidden}:
            self._session.cookies.clear()
            self.login()
            answer = self._send(method, path, body)
        if answer.status_code == requests.codes.not_found and missing_ok:
            return None
        if not answer.ok:
            raise GatewayError(
                f"OmniRoute answered {method} {path} with {answer.status_code}: {answer.text[:300]}",
                next_step="school logs omniroute shows its output.",
            )
        try:
            return answer.json() if answer.content else {}
        except ValueError as error:
            raise GatewayError(f"OmniRoute answered {method} {path} with something that is not JSON.") from error

    def _send(self, method: str, path: str, body: Any) -> requests.Response:
        try:
            return self._session.request(method, self.url + path, json=body, timeout=TIMEOUT)
        except requests.RequestException as error:
            raise GatewayUnavailableError(
                f"OmniRoute at {self.url} does not answer: {type(error).__name__}.",
                next_step="school up starts the school's own; school gateway list shows which one is used.",
            ) from error

    # -- keys -----------------------------------------------------------------------------------------------------

    def create_key(self, name: str, *, models: Sequence[str] = (), daily_usd: float | None = None) -> ApiKey:
        """Make a key that may use these models only (all, when empty), with a daily cost limit.

        Raises:
            GatewayError: it was not made; a key that could not be limited is revoked again.
        """
        made = self.call("POST", "/api/keys", {"name": name})
        key = ApiKey(str(made["id"]), name, active=True, last_used=time.time(), secret=str(made["key"]))
        try:
            if models:
                self.call("PATCH", f"/api/keys/{key.id}", {"allowedModels": list(models)})
            if daily_usd:
                self.call("POST", "/api/usage/budget", {"apiKeyId": key.id, "dailyLimitUsd": daily_usd})
        except GatewayError:
            self.revoke_key(key)
            raise
        return key

    def keys(self, prefix: str = "") -> list[ApiKey]:
        """Return the keys whose name begins with ``prefix``."""
        listed = self.call("GET", "/api/keys")["keys"]
        return [
            ApiKey(str(key["id"]), str(key["name"]), bool(key.get("isActive", True)), _last_used(key))
            for key in listed
            if str(key["name"]).startswith(prefix)
        ]

    def revoke_key(self, key: ApiKey) -> None:
        """Make a key unusable, at once and for good. Gone already: nothing happens."""
        self.call("PATCH", f"/api/keys/{key.id}", {"isActive": False, "allowedModels": ["none"]}, missing_ok=True)
        self._delete_if_forgotten(key)

    def sweep_keys(self, prefix: str) -> int:
        """Delete revoked keys that no cache can bring back any more; return how many."""
        return sum(self._delete_if_forgotten(key) for key in self.keys(prefix) if not key.active)

    def _delete_if_forgotten(self, key: ApiKey) -> bool:
        if time.time() - key.last_used < CACHE_SECONDS:
            return False
        self.call("DELETE", f"/api/keys/{key.id}", missing_ok=True)
        return True

    # -- what happened --------------------------------------------------------------------------------------------

    def call_log(self, key_name: str, *, limit: int = 200) -> list[dict[str, Any]]:
        """Return the calls made under a key, the newest first. Calls that OmniRoute refused are not among them."""
        entries = self.call("GET", f"/api/usage/call-logs?apiKey={quote(key_name, safe='')}&limit={limit}")
        # an unknown filter is ignored silently: look again
        return [entry for entry in entries if entry.get("apiKeyName") == key_name]

    def prove_auth(self) -> None:
        """Prove that it keeps out what it must.

        Raises:
            GatewayAuthError: it lets somebody in; nothing must be run behind it.
        """
        key = self.create_key(f"school-proof-{time.time_ns():x}")
        try:
            chat, admin = "/v1/chat/completions", "/api/keys"
            for what, method, path, secret, expected in (
                ("a call without a key", "POST", chat, None, 401),
                ("a call with a made-up key", "POST", chat, "sk-made-up", 401),
                ("a student's key on the admin's routes", "GET", admin, key.secret, 403),
                ("nobody on the admin's routes", "GET", admin, None, 401),
            ):
                status = self._status(method, path, secret)
                if status != expected:
                    raise GatewayAuthError(
                        f"OmniRoute at {self.url} answered {what} with {status} instead of {expected}.",
                        next_step="Don't use it. Is REQUIRE_API_KEY=true set, and is it the pinned version?",
                    )
        finally:
            self.call("PATCH", f"/api/keys/{key.id}", {"isActive": False}, missing_ok=True)
            self.call("DELETE", f"/api/keys/{key.id}", missing_ok=True)  # it was never valid on a model route

    def _status(self, method: str, path: str, secret: str | None) -> int:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        try:
            # not the session: its cookie is the admin's
            with requests.Session() as stranger:
                stranger.trust_env = False
                answer = stranger.request(method, self.url + path, headers=headers, timeout=TIMEOUT, json={})
        except requests.RequestException as error:
            raise GatewayUnavailableError(f"OmniRoute at {self.url} does not answer.") from error
        return answer.status_code


def _last_used(key: dict[str, Any]) -> float:
    text = key.get("lastUsedAt") or key.get("createdAt")
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return time.time()
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
