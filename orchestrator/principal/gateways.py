"""What the ``school gateway`` commands need of a home's school: describe, apply, probe."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator import resources
from orchestrator.engine.connect import connect
from orchestrator.errors import ConfigError, SchoolError
from orchestrator.gateway.config import read_home_file, write_home_file
from orchestrator.gateway.providers import probe_aliases
from orchestrator.principal.bring_up import (
    configure_gateway,
    ensure_parts,
    forget_brought_up,
    gateway_config,
    keys_of,
)
from orchestrator.principal.school import open_school
from orchestrator.sandbox import standing
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from orchestrator.gateway.config import Provider


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


@contextlib.contextmanager
def kept_only_if_it_works() -> Iterator[None]:
    """Put the home's gateway file back as it was when the block fails: a wrong address must not wedge the home.

    The gateway itself is brought back to the old file by the next ``school up`` or spawn; a provider that was added
    before the failure is gone from it then.
    """
    home = settings().home().ensure()
    before = read_home_file(home)
    try:
        yield
    except SchoolError as error:
        write_home_file(home, before)
        forget_brought_up(home)
        note = "Nothing was changed: the gateway's file is as it was."
        error.next_step = f"{error.next_step} {note}".strip()
        raise


def require_key(provider: Provider) -> None:
    """Refuse a provider whose key is named and not at hand.

    Raises:
        ConfigError: says where the key was looked for.
    """
    if provider.key(os.environ) is None:
        raise ConfigError(
            f"The key of provider {provider.name} is not at hand: ${provider.key_env} is not set.",
            next_step=f"export {provider.key_env}=…, or name a file with the key: --key-file FILE.",
        )


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
