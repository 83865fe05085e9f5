"""Which OmniRoute a home uses: its own, or one that its user runs already (``school gateway use``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator import layout
from orchestrator.errors import ConfigError
from orchestrator.gateway.config import LOOPBACK, GatewayConfig
from orchestrator.gateway.grants import Keys, SharedKey
from orchestrator.gateway.omniroute import OmniRoute
from orchestrator.gateway.relay import SOCKET, drop_relay, ensure_relay

if TYPE_CHECKING:
    from orchestrator.home import Home

OWN = "http://omniroute:20128"


def gate_upstream(config: GatewayConfig) -> str:
    """Return what the gate is to be told as SCHOOL_UPSTREAM."""
    if config.url is None:
        return OWN
    if urlsplit(config.url).hostname in LOOPBACK:
        return f"unix:{layout.GATE_ROOT}/upstream/{SOCKET}"
    return config.url


def ensure_reachable(home: Home, config: GatewayConfig) -> None:
    """Start the relay to an OmniRoute on the host's loopback; without such a one, let a running relay end.

    Raises:
        GatewayUnavailableError: the relay did not start.
    """
    if config.url is not None and urlsplit(config.url).hostname in LOOPBACK:
        ensure_relay(home, config.url)
    else:
        drop_relay(home)


def foreign_omniroute(config: GatewayConfig) -> OmniRoute | None:
    """Return the client of the user's OmniRoute; None without one, or without its admin's password.

    Raises:
        ConfigError: the password's file can't be read.
    """
    if config.url is None or config.admin_password_file is None:
        return None
    return OmniRoute(config.url, _secret(config.admin_password_file, "admin password"))


def foreign_keys(config: GatewayConfig, omniroute: OmniRoute | None) -> Keys:
    """Return where keys for the user's OmniRoute come from: itself, or the one shared key.

    Raises:
        ConfigError: there is neither.
    """
    if omniroute is not None:
        return omniroute
    if config.shared_key_file is None:
        raise ConfigError(
            "There is neither a password nor a key for the OmniRoute in use.",
            next_step="school gateway use URL --admin-password-file FILE, or --key-file FILE.",
        )
    return SharedKey(_secret(config.shared_key_file, "key"))


def _secret(file: str, what: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file with the {what} of the OmniRoute in use can't be read: {error}",
            next_step=f"Write it into {file}, mode 0600.",
        ) from error
