"""What ``school gateway add | use | list | test`` do."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError, GatewayError, UsageError
from orchestrator.gateway.config import (
    GatewayConfig,
    Provider,
    load_config,
    provider_from,
    read_home_file,
    write_home_file,
)
from orchestrator.gateway.gate_client import UnixConnection
from orchestrator.gateway.grants import Keys, close_grant, open_grant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.gateway.gate_client import GateClient
    from orchestrator.home import Home

TEST_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class AliasTest:
    """How one alias answered one small call."""

    alias: str
    ok: bool
    milliseconds: float
    model: str  # as the answer names it
    rehearsed: bool
    detail: str  # what was wrong


def parse_price(text: str) -> dict[str, float]:
    """Return the price that ``INPUT/OUTPUT`` says, USD per million tokens.

    Raises:
        UsageError: it is not of that form.
    """
    first, slash, second = text.partition("/")
    with contextlib.suppress(ValueError):
        price = {"input": float(first), "output": float(second)}
        if slash and all(0 <= value < float("inf") for value in price.values()):
            return price
    raise UsageError(
        f"Not a price: {text!r}.", next_step="Write INPUT/OUTPUT in USD per million tokens, for example 3/15."
    )


def add_provider(
    home: Home,
    shipped: Path,
    name: str,
    *,
    models: Sequence[str],
    preset: str | None = None,
    base_url: str | None = None,
    wire: str | None = None,
    key_env: str | None = None,
    key_file: str | None = None,
    price: str | None = None,
) -> Provider:
    """Write a provider into the home's file, or replace it; the next configure() applies it.

    Raises:
        ConfigError: something is missing or malformed; the file is as it was.
        UsageError: the price is not one.
    """
    config = load_config(shipped, home)
    if preset is None and name not in config.presets and base_url is None:
        raise ConfigError(
            f"{name} is not a preset ({', '.join(config.presets)}), so its address must be given.",
            next_step=f"school gateway add {name} --base-url https://HOST/v1 --key-env VARIABLE --models MODEL",
        )
    if not models:
        raise ConfigError(
            f"Which models of {name}?",
            next_step=f"school gateway add {name} --models MODEL[,MODEL]: they are tried in this order.",
        )
    given = {"preset": preset, "wire": wire, "base_url": base_url, "key_env": key_env, "key_file": key_file}
    entry: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    known_price = None if price is None else parse_price(price)
    entry["models"] = [{"name": model, "price": known_price} if known_price else model for model in models]
    provider = provider_from(name, entry, config.presets)
    data = read_home_file(home)
    data["providers"] = {**(data.get("providers") or {}), name: entry}
    _write_checked(home, shipped, data)
    return provider


def remove_provider(home: Home, shipped: Path, name: str) -> None:
    """Take a provider out of the home's file.

    Raises:
        ConfigError: there is none of that name, or an alias still names its models.
    """
    data = read_home_file(home)
    providers = dict(data.get("providers") or {})
    if providers.pop(name, None) is None:
        raise ConfigError(f"There is no provider {name!r}.", next_step="school gateway list shows them.")
    data["providers"] = providers
    _write_checked(home, shipped, data)


def use_gateway(
    home: Home,
    shipped: Path,
    url: str | None,
    *,
    admin_password_file: str | None = None,
    shared_key_file: str | None = None,
) -> list[str]:
    """Use an OmniRoute that runs already (None: the school's own again); return what does not hold with it.

    Raises:
        UsageError: the URL is not one, or neither a password nor a key is given.
    """
    data = read_home_file(home)
    for key in ("url", "admin_password_file", "shared_key_file"):
        data.pop(key, None)
    warnings: list[str] = []
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
            raise UsageError(f"Not the address of an OmniRoute: {url!r}.", next_step="Write http://HOST:PORT.")
        if admin_password_file is None and shared_key_file is None:
            raise UsageError(
                "Neither a way to make keys nor a key.",
                next_step="Give --admin-password-file FILE, or --key-file FILE with one key for all.",
            )
        data["url"] = url.rstrip("/")
        for key, value in (("admin_password_file", admin_password_file), ("shared_key_file", shared_key_file)):
            if value is not None:
                data[key] = str(Path(value).expanduser().absolute())
        warnings = [
            "Its caches, memory and request limits stay as they are, and rehearsal is not reachable through it."
        ]
        if admin_password_file is None:
            warnings += [
                "Without the admin's password every bead uses the same key: OmniRoute's log can't tell beads apart.",
                "Revoking a bead closes its socket at the gate; the key itself stays valid.",
                "Aliases and providers are whatever that OmniRoute has.",
            ]
    _write_checked(home, shipped, data)
    return warnings


def _write_checked(home: Home, shipped: Path, data: dict[str, Any]) -> None:
    """Write the home's file, and put the old one back when it is not valid as a whole."""
    before = read_home_file(home)
    write_home_file(home, data)
    try:
        load_config(shipped, home)
    except ConfigError:
        write_home_file(home, before)
        raise


def probe_aliases(
    home: Home, keys: Keys, gate: GateClient, config: GatewayConfig, aliases: Sequence[str] = ()
) -> list[AliasTest]:
    """Make one small call through each alias, the way an agent would: gate, OmniRoute, provider.

    Raises:
        GatewayError: no grant could be opened.
    """
    names = tuple(aliases) or tuple(name for name, alias in config.aliases.items() if alias.targets)
    grant = f"gateway-test-{secrets.token_hex(4)}"
    opened = open_grant(
        home,
        keys,
        gate,
        config,
        grant,
        models=names,
        limits={"calls": len(names)},
        deadline=time.time() + TEST_TIMEOUT * (len(names) + 1),
        kind="principal",
    )
    try:
        return [_test(opened.folder / "gate.sock", name) for name in names]
    finally:
        close_grant(home, keys, gate, grant)


def _test(path: Path, alias: str) -> AliasTest:
    body = {"model": alias, "max_tokens": 16, "messages": [{"role": "user", "content": "Answer with one word: ready?"}]}
    began = time.monotonic()
    try:
        with contextlib.closing(UnixConnection(path, timeout=TEST_TIMEOUT)) as connection:
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(body | {"stream": False}),
                {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            data = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise GatewayError(f"The gate broke the test call off: {error}") from error
    took = (time.monotonic() - began) * 1000
    if answer.status != http.client.OK:
        error_body = data.get("error", {}) if isinstance(data, dict) else {}
        detail = error_body.get("message", "") if isinstance(error_body, dict) else str(error_body)
        return AliasTest(
            alias, ok=False, milliseconds=took, model="", rehearsed=False, detail=f"{answer.status} {detail}"
        )
    model = str(data.get("model", ""))
    rehearsed = model.rsplit("/", 1)[-1] == "rehearsal"
    return AliasTest(alias, ok=True, milliseconds=took, model=model, rehearsed=rehearsed, detail="")
