"""Brings an OmniRoute to what the configuration says: providers, models, aliases, and what must be off.

Idempotent: what is right stays, what is ours and not meant any more goes, what is not ours is left alone. Ours is
what is named ``school-…``, and the aliases.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ConfigError, GatewayError
from orchestrator.gateway.config import FOREIGN, REHEARSAL, REHEARSAL_URL, Alias, GatewayConfig, Model, Price, Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.gateway.omniroute import OmniRoute

OURS = "school-"
RETRY_DELAY_MS = 500
# One bead's error must not shut the others out for long: 1 s is the shortest that OmniRoute knows.
RESILIENCE = {
    "requestQueue": {
        "autoEnableApiKeyProviders": False,
        "requestsPerMinute": 1_000_000,
        "minTimeBetweenRequestsMs": 0,
        "concurrentRequests": 1000,
    },
    "connectionCooldown": {"apikey": {"baseCooldownMs": 0, "useUpstreamRetryHints": False, "maxBackoffSteps": 0}},
    "providerBreaker": {"apikey": {"failureThreshold": 1000, "resetTimeoutMs": 1000}},
}
CACHE = {"semanticCacheEnabled": False, "promptCacheEnabled": False, "idempotencyWindowMs": 1}
MEMORY = {"enabled": False}


def configure(
    omniroute: OmniRoute,
    config: GatewayConfig,
    *,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Apply a configuration. ``say`` is told of each change.

    In an OmniRoute that is not the school's own only what is ours is touched: no settings, no rehearsal.

    Raises:
        ConfigError: a provider is new and its key is not at hand.
        GatewayError: OmniRoute refused something.
    """
    environ = os.environ if environ is None else environ
    rehearsal = Provider(REHEARSAL, "openai", REHEARSAL_URL, (Model(REHEARSAL, Price(0.0, 0.0)),))
    own = config.url is None
    providers = (rehearsal, *config.providers) if own else config.providers
    if own:
        _settings(omniroute)
    nodes = {node["name"]: node for node in omniroute.call("GET", "/api/provider-nodes")["nodes"]}
    connections = omniroute.call("GET", "/api/providers")["connections"]
    for provider in providers:
        _provider(omniroute, provider, nodes.get(OURS + provider.name), connections, environ, say)
    _combos(omniroute, config.aliases, say)
    wanted = {OURS + provider.name for provider in providers}
    for name, node in nodes.items():
        if name.startswith(OURS) and name not in wanted:
            say(f"removing provider {name.removeprefix(OURS)}")
            _remove_node(omniroute, node, connections)


def _settings(omniroute: OmniRoute) -> None:
    # answers of one key's cache were seen with another key: off before anything is asked
    omniroute.call("PUT", "/api/settings/cache-config", CACHE)
    omniroute.call("PUT", "/api/settings/memory", MEMORY)
    omniroute.call("PATCH", "/api/resilience", RESILIENCE)


def _provider(
    omniroute: OmniRoute,
    provider: Provider,
    node: Mapping[str, Any] | None,
    connections: list[dict[str, Any]],
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    kind = f"{provider.wire}-compatible"
    if node is not None and node["type"] != kind:
        _remove_node(omniroute, node, connections)
        node = None
    existing = [] if node is None else [entry for entry in connections if entry["provider"] == node["id"]]
    key = provider.key(environ)
    if key is None and not existing:
        raise ConfigError(
            f"The key of provider {provider.name} is not at hand: {provider.key_env} is not set.",
            next_step=f"Set {provider.key_env} and run `school up`, or name a file: key_file.",
        )
    if node is None:
        say(f"adding provider {provider.name} ({provider.base_url})")
        body = {
            "name": OURS + provider.name,
            "prefix": OURS + provider.name,
            "type": kind,
            "baseUrl": provider.base_url,
        }
        if provider.wire == "openai":
            body["apiType"] = "chat"
        node = omniroute.call("POST", "/api/provider-nodes", body)["node"]
    elif node["baseUrl"] != provider.base_url:
        say(f"provider {provider.name} moves to {provider.base_url}")
        body = {"name": node["name"], "prefix": node["prefix"], "baseUrl": provider.base_url}
        omniroute.call("PUT", f"/api/provider-nodes/{node['id']}", body)
    if key is not None:
        _connection(omniroute, provider, str(node["id"]), key, existing)
    prices = {
        model.name: {"input": model.price.input, "output": model.price.output}
        for model in provider.models
        if model.price is not None
    }
    if prices:
        omniroute.call("PATCH", "/api/pricing", {str(node["id"]): prices})


def _connection(omniroute: OmniRoute, provider: Provider, node: str, key: str, existing: list[dict[str, Any]]) -> None:
    """Make the provider's one connection carry this key; its name tells which key that is."""
    name = f"{OURS}{provider.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    kept = None
    for entry in existing:
        if entry["name"] == name and kept is None:
            kept = entry
        else:
            omniroute.call("DELETE", f"/api/providers/{entry['id']}", missing_ok=True)
    if kept is not None:
        return
    body = {"provider": node, "apiKey": key, "name": name, "testStatus": "active"}
    made = omniroute.call("POST", "/api/providers", body)["connection"]
    try:
        omniroute.call("POST", f"/api/providers/{made['id']}/sync-models", {})
    except GatewayError:
        if not provider.models:  # a provider without a list of models is fine when the file names them
            raise


def _combos(omniroute: OmniRoute, aliases: Mapping[str, Alias], say: Callable[[str], None]) -> None:
    combos = {combo["name"]: combo for combo in omniroute.call("GET", "/api/combos")["combos"]}
    mappings = {entry["pattern"]: entry for entry in omniroute.call("GET", "/api/model-combo-mappings")["mappings"]}
    for alias in aliases.values():
        if any(target.startswith(FOREIGN) for target in alias.targets):
            continue
        name = alias.name.replace(":", "__")  # a combo's name may not hold a colon; a mapping's pattern may
        combo = combos.get(name)
        if not alias.targets:
            if combo is not None:
                say(f"alias {alias.name}: no model fits")
                omniroute.call("DELETE", f"/api/combos/{combo['id']}", missing_ok=True)
            continue
        body = {
            "name": name,
            "strategy": "priority",
            "models": [OURS + target for target in alias.targets],
            "config": {"maxRetries": alias.retries, "retryDelayMs": RETRY_DELAY_MS},
        }
        if combo is None:
            say(f"alias {alias.name}: {', '.join(alias.targets)}")
            combo = omniroute.call("POST", "/api/combos", body)
        elif not _same(combo, body):
            say(f"alias {alias.name}: now {', '.join(alias.targets)}")
            omniroute.call("PUT", f"/api/combos/{combo['id']}", body)
        if name != alias.name:
            _mapping(omniroute, alias.name, str(combo["id"]), mappings.get(alias.name))


def _same(combo: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    models = [entry.get("model") if isinstance(entry, dict) else entry for entry in combo.get("models", [])]
    return (models, combo.get("strategy"), combo.get("config")) == (body["models"], body["strategy"], body["config"])


def _mapping(omniroute: OmniRoute, pattern: str, combo: str, existing: Mapping[str, Any] | None) -> None:
    if existing is not None:
        if existing["comboId"] == combo and existing["enabled"]:
            return
        omniroute.call("DELETE", f"/api/model-combo-mappings/{existing['id']}", missing_ok=True)
    body = {"pattern": pattern, "comboId": combo, "priority": 1, "enabled": True}
    omniroute.call("POST", "/api/model-combo-mappings", body)


def _remove_node(omniroute: OmniRoute, node: Mapping[str, Any], connections: list[dict[str, Any]]) -> None:
    for entry in connections:
        if entry["provider"] == node["id"]:
            omniroute.call("DELETE", f"/api/providers/{entry['id']}", missing_ok=True)
    omniroute.call("DELETE", f"/api/provider-nodes/{node['id']}", missing_ok=True)
