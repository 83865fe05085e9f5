"""What the ``school gateway`` commands need of a home's school: describe, apply, probe."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator import resources
from orchestrator.engine.connect import connect
from orchestrator.gateway.providers import probe_aliases
from orchestrator.principal.bring_up import configure_gateway, ensure_parts, gateway_config, keys_of
from orchestrator.principal.school import open_school
from orchestrator.sandbox import standing
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def shipped_config() -> Path:
    """Return the shipped gateway.yaml."""
    return resources.share("config") / "gateway.yaml"


def describe() -> dict[str, Any]:
    """Return providers (never a key, only where it is) and aliases."""
    config = gateway_config(settings().home())
    return {
        "url": config.url or "the school's own OmniRoute",
        "real": config.real,
        "providers": [
            {
                "name": provider.name,
                "base_url": provider.base_url,
                "wire": provider.wire,
                "key": f"${provider.key_env}" if provider.key_env else provider.key_file or "none",
                "models": [model.name for model in provider.models],
            }
            for provider in config.providers
        ],
        "aliases": [
            {"name": alias.name, "about": alias.about, "targets": list(alias.targets), "rehearsal": alias.rehearsed}
            for alias in config.aliases.values()
        ],
    }


def apply(say: Callable[[str], None]) -> bool:
    """Apply the home's configuration to its gateway now; return False when the school is not up.

    Raises:
        ConfigError: a provider's key is not at hand.
        GatewayError: OmniRoute refused something.
    """
    in_force = settings()
    home = in_force.home().ensure()
    engine = connect()
    try:
        if not standing.parts(engine, home):
            return False
        ensure_parts(engine, home, in_force, say)  # another upstream makes another gate
        with keys_of(engine, home) as keys:
            configure_gateway(home, in_force, keys, say)
    finally:
        engine.close()
    return True


def probe(aliases: Sequence[str], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Make one small call through each alias, the way an agent would.

    Raises:
        ConfigError: there is no such alias.
        GatewayError: the gate or OmniRoute does not answer.
    """
    with open_school(say) as school:
        return [
            asdict(result) for result in probe_aliases(school.home, school.gateway, school.gate, school.config, aliases)
        ]
