"""Grants: a key at OmniRoute for one bead or teacher, handed to the gate and kept nowhere else."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import GatewayError
from orchestrator.faults import fault_point
from orchestrator.gateway.omniroute import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.gateway.config import GatewayConfig
    from orchestrator.gateway.gate_client import GateClient
    from orchestrator.home import Home


class Keys(Protocol):
    """Where keys come from: ``OmniRoute``, or ``SharedKey`` where its admin's password is not known."""

    def create_key(self, name: str, *, models: Sequence[str] = (), daily_usd: float | None = None) -> ApiKey:
        """Make a key."""
        ...

    def keys(self, prefix: str = "") -> list[ApiKey]:
        """Return the keys of these names."""
        ...

    def revoke_key(self, key: ApiKey) -> None:
        """Make a key unusable."""
        ...

    def sweep_keys(self, prefix: str) -> int:
        """Delete what was revoked long enough ago."""
        ...


class SharedKey:
    """One key for everybody, of an OmniRoute that the school can't administer.

    What does not hold then: a bead's calls are not told apart in OmniRoute's log (in the gate's they are), and
    revoking a bead only closes its socket at the gate.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def create_key(self, name: str, *, models: Sequence[str] = (), daily_usd: float | None = None) -> ApiKey:  # noqa: ARG002
        """Return the shared key."""
        return ApiKey("shared", name, active=True, last_used=0.0, secret=self._secret)

    def keys(self, prefix: str = "") -> list[ApiKey]:  # noqa: ARG002
        """Return none: there is nothing to revoke."""
        return []

    def revoke_key(self, key: ApiKey) -> None:
        """Do nothing."""

    def sweep_keys(self, prefix: str) -> int:  # noqa: ARG002
        """Do nothing."""
        return 0


@dataclass(frozen=True, slots=True)
class Grant:
    """An open grant. ``folder`` is what the container mounts at layout.GATE_DIR."""

    name: str
    key_name: str
    folder: Path
    models: tuple[str, ...]


def key_name(home: Home, grant: str) -> str:
    """Return the name of a grant's key at OmniRoute: its call log shows a bead's calls under it (R-56)."""
    return f"school-{home.id}-{grant}"


def open_grant(
    home: Home,
    keys: Keys,
    gate: GateClient,
    config: GatewayConfig,
    bead: str,
    *,
    models: Sequence[str],
    limits: Mapping[str, float | None],
    deadline: float | None,
    kind: str = "student",
    egress: Sequence[str] = (),
    egress_bytes: int | None = None,
) -> Grant:
    """Make a key for one bead and hand it to the gate. The grant is named by the bead.

    Safe to repeat after a crash: earlier keys of this bead are revoked.

    Args:
        home: The home.
        keys: Where the key comes from.
        gate: The home's gate.
        config: Tells prices and which aliases are rehearsed.
        bead: The bead; for a teacher or the principal the grant's name.
        models: Aliases that it may use.
        limits: ``calls``, ``tokens``, ``cost_usd``, ``parallel``; None or missing is unbounded.
        deadline: Epoch seconds.
        kind: ``student``, ``teacher`` or ``principal``.
        egress: Places (name:port) that it may reach through the gate's proxy.
        egress_bytes: What it may send and receive there, together; None is unbounded.

    Raises:
        ConfigError: an alias does not exist or has no model.
        GatewayError: OmniRoute or the gate refused.
    """
    models = tuple(models)
    prices = config.prices(models)
    rehearsed = config.rehearsal_models(models)
    name = key_name(home, bead)
    _revoke_keys(keys, name)
    key = keys.create_key(name, models=models, daily_usd=limits.get("cost_usd"))
    fault_point("grant.key")
    try:
        folder = gate.grant(
            bead,
            kind=kind,
            bead=bead if kind == "student" else None,
            key=key.secret,
            models=models,
            limits=limits,
            prices=prices,
            deadline=deadline,
            rehearsal_models=rehearsed,
            egress=egress,
            egress_bytes=egress_bytes,
        )
    except GatewayError:
        keys.revoke_key(key)
        raise
    return Grant(bead, name, folder, models)


def ensure_grant(
    home: Home,
    keys: Keys,
    gate: GateClient,
    config: GatewayConfig,
    name: str,
    *,
    models: Sequence[str],
    kind: str = "teacher",
) -> None:
    """Make sure that a standing part (a teacher) has a grant that works and fits the configuration.

    Does nothing when it has; otherwise its key is renewed, its usage and its socket stay.

    Raises:
        ConfigError: an alias does not exist or has no model.
        GatewayError: OmniRoute or the gate refused.
    """
    models = tuple(models)
    terms = next((usage["terms"] for usage in gate.grants() if usage["grant"] == name), None)
    wanted = (list(models), config.prices(models), sorted(config.rehearsal_models(models)))
    if terms is not None and (terms["models"], terms["prices"], terms["rehearsal_models"]) == wanted:
        wanted_key = key_name(home, name)
        if isinstance(keys, SharedKey) or any(key.name == wanted_key and key.active for key in keys.keys(wanted_key)):
            return
    open_grant(home, keys, gate, config, name, models=models, limits={}, deadline=None, kind=kind)


def close_grant(home: Home, keys: Keys, gate: GateClient, bead: str) -> dict[str, Any] | None:
    """Revoke a bead's grant and its keys, whatever is left of them; return its final usage, or None if never open.

    Idempotent, and needs nothing but the bead's id, so that whoever adopts the bead can do it. Both are tried even
    when one fails.

    Raises:
        GatewayError: one of them could not be revoked; call again.
    """
    usage, failure = None, None
    try:
        usage = gate.revoke(bead)
    except GatewayError as error:
        failure = error
    fault_point("grant_closed.gate")
    _revoke_keys(keys, key_name(home, bead))
    if failure is not None:
        raise failure
    with contextlib.suppress(GatewayError):  # housekeeping over earlier beads: this bead is closed
        sweep(home, keys)
    return usage


def sweep(home: Home, keys: Keys) -> int:
    """Delete this home's keys that were revoked some minutes ago; return how many."""
    return keys.sweep_keys(f"school-{home.id}-")


def _revoke_keys(keys: Keys, name: str) -> None:
    for key in keys.keys(name):
        if key.name == name and key.active:
            keys.revoke_key(key)
