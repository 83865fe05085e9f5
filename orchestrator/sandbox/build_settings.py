"""How an image build reaches the outside from behind a corporate network: certificates, proxy, package indexes.

All of it is the way there, not part of what is built: it enters no digest (the certificates do: they
stay in the image) and is set as build arguments, so that nothing of it is left in an image's environment.
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.settings import Settings

_HOST_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)
_PIP_CONFIGS = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_PIP_OPTIONS = ("index-url", "extra-index-url", "trusted-host")
_PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_DEFAULT_TIMEOUT",
    "NPM_CONFIG_REGISTRY",
    "GOPROXY",
    "GOSUMDB",
)


@dataclass(frozen=True, slots=True)
class BuildRoute:
    """Certificates (PEM), build arguments, and the network that builds use."""

    ca: bytes
    args: dict[str, str]
    network: str


def build_route(settings: Settings, say: Callable[[str], None]) -> BuildRoute:
    """Return how builds on this host reach the outside.

    Args:
        settings: ``build_ca`` and ``build_proxy`` are read.
        say: Told what is left out and why.

    Raises:
        ConfigError: ``build_ca`` can't be read or holds no certificate.
    """
    args = {}
    proxy = settings.build_proxy or _from_environment("HTTPS_PROXY") or _from_environment("HTTP_PROXY")
    if proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            args[name] = proxy
        if no_proxy := _from_environment("NO_PROXY"):
            args["NO_PROXY"] = args["no_proxy"] = no_proxy
    for name, value in _index_settings().items():
        if any(urlsplit(word).username for word in re.split(r"[\s,|]+", value)):  # GOPROXY takes commas and bars
            say(f"{name} holds a password or token, so no image build gets it: the image's history would show it")
        else:
            args[name] = value
    return BuildRoute(_ca_bundle(settings), args, "host" if proxy and _is_loopback(proxy) else "default")


def _from_environment(name: str) -> str | None:
    return os.environ.get(name) or os.environ.get(name.lower()) or None


def _is_loopback(url: str) -> bool:
    """Whether a proxy listens on the host's loopback: a build on the bridge network can't reach it."""
    host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _index_settings() -> dict[str, str]:
    """Return the host's package index settings, files on the host left out: no build can read them."""
    found: dict[str, str] = {}
    for name in _PIP_CONFIGS:
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(Path(name).expanduser(), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself will complain of it; a build has its own pip.conf
        for option in _PIP_OPTIONS:
            if value := parser.get("global", option, fallback=""):
                found[f"PIP_{option.upper().replace('-', '_')}"] = value
    found.update({name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)})
    usable = {
        name: " ".join(word for word in value.split() if not word.startswith(("file:", "/")))
        for name, value in found.items()
    }
    return {name: value for name, value in usable.items() if value}


def _ca_bundle(settings: Settings) -> bytes:
    """Return the certificates that builds must trust: those of ``build_ca``, or all that the host trusts."""
    if settings.build_ca is None:
        path = next((Path(name) for name in _HOST_BUNDLES if Path(name).is_file()), None)
        return path.read_bytes() if path else b""
    try:
        data = settings.build_ca.expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(
            f"The CA bundle {settings.build_ca} can't be read: {error.strerror}.",
            next_step="Set SCHOOL_BUILD_CA to a PEM file that you may read.",
        ) from error
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise ConfigError(
            f"The CA bundle {settings.build_ca} holds no certificate in PEM form.",
            next_step="Set SCHOOL_BUILD_CA to a PEM file (it begins with -----BEGIN CERTIFICATE-----).",
        )
    return data
