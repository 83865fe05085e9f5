"""Which providers there are and what each alias means: config/gateway.yaml and ``<home>/school/gateway.yaml``."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.home import Home

REHEARSAL = "rehearsal"
"""Alias, provider and model of the scripted model."""
REHEARSAL_URL = "http://rehearsal:8080/v1"
WIRES = ("openai", "anthropic")
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/.:-]{0,99}")
FOREIGN = "omniroute/"
"""Begins the target of an alias that the user's own OmniRoute resolves, in a way that the school can't see."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a provider; a price of None is unknown."""

    name: str
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider. Its key is named, never held: an environment variable, a file, or none."""

    name: str
    wire: str
    base_url: str
    models: tuple[Model, ...] = ()
    key_env: str | None = None
    key_file: str | None = None

    def key(self, environ: Mapping[str, str]) -> str | None:
        """Return the key, or None when it is named and not at hand (it may be at the gateway already).

        Raises:
            ConfigError: the key's file can't be read.
        """
        if self.key_file is not None:
            try:
                return Path(self.key_file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"The key file of provider {self.name} can't be read: {error}",
                    next_step=f"Write the key into {self.key_file}, mode 0600.",
                ) from error
        if self.key_env is not None:
            return environ.get(self.key_env) or None
        return "none-needed"


@dataclass(frozen=True, slots=True)
class Alias:
    """What an alias stands for. ``targets`` are ``provider/model``, tried in this order; empty: nothing fits."""

    name: str
    about: str
    targets: tuple[str, ...]
    price: Price | None
    retries: int = 1

    @property
    def rehearsed(self) -> bool:
        """Whether the scripted model answers."""
        return self.targets == (f"{REHEARSAL}/{REHEARSAL}",)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Providers and aliases of one home. ``url`` is an OmniRoute that the user runs, or None for the school's own."""

    providers: tuple[Provider, ...]
    aliases: Mapping[str, Alias]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    url: str | None = None
    admin_password_file: str | None = None
    shared_key_file: str | None = None

    @property
    def real(self) -> bool:
        """Whether anything but rehearsal answers."""
        return bool(self.providers) or self.url is not None

    def alias(self, name: str) -> Alias:
        """Return an alias that can be asked.

        Raises:
            ConfigError: there is no such alias, or no model fits it.
        """
        found = self.aliases.get(name)
        if found is None and self.url is not None and ALIAS.fullmatch(name):
            return _foreign(name, "whatever the OmniRoute in use makes of it")
        if found is None:
            known = ", ".join(self.aliases)
            raise ConfigError(
                f"There is no model alias {name!r}.",
                next_step=f"Use one of {known}, or add it to aliases in <home>/school/gateway.yaml.",
            )
        if not found.targets:
            raise ConfigError(
                f"No model fits the alias {name!r} ({found.about}).",
                next_step="school gateway add NAME --models MODEL --price INPUT/OUTPUT, or use another alias.",
            )
        return found

    def prices(self, models: tuple[str, ...] | list[str]) -> dict[str, dict[str, float] | None]:
        """Return the prices of aliases as the gate wants them; None where one is unknown."""
        prices = {name: self.alias(name).price for name in models}
        return {
            name: None if price is None else {"input": price.input, "output": price.output}
            for name, price in prices.items()
        }

    def rehearsal_models(self, models: tuple[str, ...] | list[str]) -> list[str]:
        """Return those of the aliases that the scripted model answers."""
        return [name for name in models if self.alias(name).rehearsed]


def home_file(home: Home) -> Path:
    """Return the home's own file."""
    return home.school / "gateway.yaml"


def load_config(shipped: Path, home: Home) -> GatewayConfig:
    """Read both files. ``shipped`` is config/gateway.yaml.

    Raises:
        ConfigError: a file is malformed; the message names the place.
    """
    own = read_home_file(home)
    base = _read(shipped)
    known = {"version", "providers", "aliases", "url", "admin_password_file", "shared_key_file"}
    unknown = sorted(set(own) - known)
    if unknown:
        raise _wrong(f"{home_file(home)}: unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    presets = base.get("presets") or {}
    providers = tuple(
        provider_from(name, data, presets) for name, data in _mapping(own.get("providers"), "providers").items()
    )
    url = _text(own, "url")
    shipped_aliases, own_aliases = (_mapping(data.get("aliases"), "aliases") for data in (base, own))
    aliases = _aliases(shipped_aliases, own_aliases, providers, foreign=url is not None)
    return GatewayConfig(
        providers,
        aliases,
        presets,
        url=url,
        admin_password_file=_text(own, "admin_password_file"),
        shared_key_file=_text(own, "shared_key_file"),
    )


def read_home_file(home: Home) -> dict[str, Any]:
    """Return the home's own file as it is, empty when there is none.

    Raises:
        ConfigError: it is not a YAML mapping.
    """
    path = home_file(home)
    return _read(path) if path.exists() else {"version": 1}


def write_home_file(home: Home, data: Mapping[str, Any]) -> None:
    """Replace the home's own file, atomically, 0600."""
    path = home_file(home)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yaml.safe_dump(dict(data), file, sort_keys=False, allow_unicode=True)
    temporary.replace(path)


def provider_from(name: Any, data: Any, presets: Mapping[str, Any]) -> Provider:
    """Return one provider from its entry in a file.

    Raises:
        ConfigError: something is missing or malformed.
    """
    where = f"provider {name}"
    if not isinstance(name, str) or not PROVIDER_NAME.fullmatch(name) or name == REHEARSAL:
        raise _wrong(f"{where}: a name is 1 to 32 lower case letters, digits and dashes, and not {REHEARSAL!r}")
    given = _mapping(data, where)
    preset = presets.get(given.get("preset", name), {})
    if "preset" in given and not preset:
        raise _wrong(f"{where}: there is no preset {given['preset']!r}; there are {', '.join(presets)}")
    known = {"preset", "wire", "base_url", "key_env", "key_file", "models"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise _wrong(f"{where}: unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    merged = {**preset, **given}
    base_url = _text(merged, "base_url")
    if base_url is None:
        raise _wrong(f"{where}: base_url is missing")
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise _wrong(f"{where}: base_url must be http(s)://host[:port]/path, without a user in it: {base_url!r}")
    if parts.hostname in LOOPBACK:
        raise ConfigError(
            f"{where}: {base_url} is this machine's loopback, which the gateway's container can't reach.",
            next_step="Let the server listen on the engine's bridge address, customarily 172.17.0.1, and name that.",
        )
    wire = merged.get("wire", "openai")
    if wire not in WIRES:
        raise _wrong(f"{where}: wire must be one of {', '.join(WIRES)}")
    models = given.get("models") or []
    if not isinstance(models, list):
        raise _wrong(f"{where}: models must be a list")
    free = Price(0.0, 0.0) if preset.get("free") else None
    return Provider(
        name=name,
        wire=wire,
        base_url=base_url.rstrip("/"),
        models=tuple(_model(model, where, free) for model in models),
        key_env=None if given.get("key_file") else _text(merged, "key_env"),
        key_file=_text(given, "key_file"),
    )


def _model(data: Any, where: str, default: Price | None) -> Model:
    if isinstance(data, str) and data:
        return Model(data, default)
    if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"]:
        raise _wrong(f"{where}: a model is a name, or a mapping with name and price")
    price = data.get("price")
    if price is None:
        return Model(data["name"], default)
    if not isinstance(price, dict) or not all(_amount(price.get(key)) for key in ("input", "output")):
        raise _wrong(f"{where}: the price of {data['name']} is {{input: USD, output: USD}} per million tokens")
    return Model(data["name"], Price(float(price["input"]), float(price["output"])))


def _amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _aliases(
    shipped: Mapping[Any, Any], own: Mapping[Any, Any], providers: tuple[Provider, ...], *, foreign: bool
) -> dict[str, Alias]:
    priced = {f"{provider.name}/{model.name}": model.price for provider in providers for model in provider.models}
    found: dict[str, Alias] = {}
    for name in (*shipped, *(extra for extra in own if extra not in shipped)):
        where = f"alias {name}"
        if not isinstance(name, str) or not ALIAS.fullmatch(name) or name == REHEARSAL:
            raise _wrong(f"{where}: a name is letters, digits and _ / . : -, and not {REHEARSAL!r}")
        data = _mapping(shipped.get(name), where)
        chosen = own.get(name)
        retries = data.get("retries", 1)
        about = str(data.get("about", "an alias of this home"))
        if not providers and foreign:
            found[name] = _foreign(name, about)
            continue
        if not providers:
            # no retries: a scripted fault is there to be seen
            found[name] = Alias(name, about, (f"{REHEARSAL}/{REHEARSAL}",), Price(0.0, 0.0), 0)
            continue
        targets = (
            _chosen(chosen, where, priced) if chosen is not None else _all(priced, free=bool(data.get("free_only")))
        )
        found[name] = Alias(name, about, targets, _dearest([priced[target] for target in targets]), retries)
    scripted = () if foreign else (f"{REHEARSAL}/{REHEARSAL}",)
    about = "the scripted model; only the school's own OmniRoute reaches it" if foreign else "the scripted model"
    found[REHEARSAL] = Alias(REHEARSAL, about, scripted, Price(0.0, 0.0), 0)
    return found


def _foreign(name: str, about: str) -> Alias:
    return Alias(name, about, (FOREIGN + name,), None)


def _all(priced: Mapping[str, Price | None], *, free: bool) -> tuple[str, ...]:
    return tuple(target for target, price in priced.items() if not free or price == Price(0.0, 0.0))


def _chosen(chosen: Any, where: str, priced: Mapping[str, Price | None]) -> tuple[str, ...]:
    targets = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        raise _wrong(f"{where}: must be provider/model or a list of them")
    for target in targets:
        if target.startswith(f"{REHEARSAL}/"):
            raise _wrong(f"{where}: rehearsal is never mixed with real models; use the alias {REHEARSAL!r} for it")
        if target not in priced:
            raise _wrong(f"{where}: there is no model {target!r}; there are {', '.join(priced) or 'none'}")
    return tuple(targets)


def _dearest(prices: list[Price | None]) -> Price | None:
    """Any of the models may answer: count the dearest, and nothing as known while one is unknown."""
    known = [price for price in prices if price is not None]
    if not known or len(known) != len(prices):
        return None
    return Price(max(price.input for price in known), max(price.output for price in known))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _wrong(f"{path} can't be read: {error}") from error
    found = _mapping(data, str(path))
    if found.get("version") != 1:
        raise _wrong(f"{path}: version must be 1")
    return found


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise _wrong(f"{where}: must be a mapping")
    return data


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise _wrong(f"{key} must be a non-empty text")
    return value


def _wrong(message: str) -> ConfigError:
    return ConfigError(message, next_step="docs/gateway.md describes the file.")
