"""Every setting of the school, with its default and its meaning. Host only (containers are told by environment).

Sources, strongest first: the command line, the environment, ``<home>/.env``, ``<home>/school/config.toml``, the
defaults below. A ``.env`` in the current folder or in a repository is never read: it was seen to steer a program.
Where the home is, only the environment says: a home can't name another one.
docs/configuration.md is generated from this file (tools/configuration_doc.py).
"""

from __future__ import annotations

import math
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from orchestrator.errors import ConfigError
from orchestrator.home import Home, home_root


class Settings(BaseSettings):
    """The settings. Names without a prefix are those of the source documents (R-8, R-47)."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True, frozen=True)

    # where things are
    school_home: Path = Field(default_factory=home_root, description="The school's home folder.")
    bookbag_dir: Path | None = Field(None, description="Bookbags; default `<home>/bookbag`.")
    signal_dir: Path | None = Field(None, description="Ready flags; default `<home>/signals`.")
    lock_dir: Path | None = Field(None, description="Lock files; default `<home>/locks`.")

    # waiting, in seconds
    handoff_timeout: float = Field(
        120.0,
        gt=0,
        description="Longest wait for the teachers to pick a bead up, and longest stretch without progress (s).",
    )
    handoff_poll_interval: float = Field(
        5.0,
        gt=0,
        description="How often the principal looks for verdicts where the file system does not notify (s).",
    )
    default_poll_interval: float = Field(
        5.0,
        gt=0,
        description="How often a teacher looks for flags where the file system does not notify (s).",
    )
    default_review_timeout: float = Field(90.0, gt=0, description="Longest time for one attempt at a review (s).")
    lock_timeout: float = Field(10.0, gt=0, description="Longest wait for a bookbag's lock (s).")
    max_session_cycles: int = Field(10, ge=1, description="Sessions a teacher keeps (R-35).")
    review_attempts: int = Field(3, ge=1, description="Attempts at a review before the bead is parked (R-37).")
    review_budget: int = Field(240_000, ge=1000, description="Characters of evidence that one review reads.")
    review_parallel: int = Field(4, ge=1, description="Reviews that one teacher makes at once.")

    # a student's limits
    student_timeout: int = Field(900, ge=1, description="Wall time of a student (s).")
    student_max_calls: int = Field(100, ge=1, description="Model calls of a student.")
    student_max_tokens: int = Field(2_000_000, ge=1, description="Tokens of a student, prompt and completion together.")
    student_max_cost: float = Field(
        2.0, gt=0, description="Cost of a student (USD); calls without a known price don't count."
    )
    day_max_calls: int | None = Field(None, ge=1, description="Model calls of the whole school in a day (UTC).")
    day_max_tokens: int | None = Field(None, ge=1, description="Tokens of the whole school in a day (UTC).")
    day_max_cost: float | None = Field(
        None, gt=0, description="Cost of the whole school in a day (UTC, USD); calls without a known price don't count."
    )
    egress_allow: str = Field(
        "",
        description="Places that repositories may ask for, with commas: `NAME:PORT`, each exactly; empty: no way out.",
    )
    egress_bytes: str = Field("512m", description="What a bead may send and receive there, together.")
    student_memory: str = Field("2g", description="Memory of a student, swap included.")
    student_cpus: float = Field(2.0, gt=0, description="CPUs of a student.")
    student_pids: int = Field(512, ge=16, description="Processes of a student.")
    student_disk: str = Field("4g", description="What a student may add on disk, all its writable mounts together.")
    student_tmp: str = Field("1g", description="Size of a student's /tmp and home, each, in memory.")
    student_runtime: str | None = Field(None, description="OCI runtime of leaves, for example `runsc`.")
    verify_timeout: int = Field(900, ge=1, description="Wall time of the repository's own check (s).")

    # how many beads and starts at once
    max_beads: int = Field(8, ge=1, description="Beads that run at once, over all processes of this home.")
    max_starts: int = Field(3, ge=1, description="Container starts in flight at once, over all processes of this home.")

    # models
    default_agent: Literal["auto", "light", "hermes", "command"] = Field(
        "auto",
        description="Agent of a student: `auto` is hermes, or light while only the rehearsal model exists.",
    )
    student_model: str = Field("auto/coding:reliable", description="Alias of the student's model at the gateway.")
    review_model: str = Field("auto/review", description="Alias of the teachers' model at the gateway.")
    omniroute_port: int = Field(
        0, ge=0, le=65535, description="Port of the school's OmniRoute on 127.0.0.1; 0: the engine chooses."
    )

    director_model: str = Field(
        "",
        description="Alias that is asked for a task's kind where no routing rule can tell; empty: the defaults hold.",
    )

    # building images
    build_ca: Path | None = Field(None, description="CA bundle for image builds; default: the host's own.")
    build_proxy: str | None = Field(None, description="Proxy for image builds; default: HTTPS_PROXY or HTTP_PROXY.")
    base_image: str = Field("python:3.12-slim", description="Base image; a stand-in is built where it can't be pulled.")

    # the task tracker, mail and staff
    tracker: Literal["auto", "sqlite", "bd"] = Field(
        "auto", description="Task tracker: `auto` is bd where it is on PATH and `beads_folder` is set, else sqlite."
    )
    beads_folder: Path | None = Field(None, description="Folder that holds the `.beads` of bd: one repository.")
    mail: Literal["off", "agentmail", "smtp"] = Field("off", description="How a person is told of verdicts.")
    mail_to: str = Field("", description="Address that notices go to.")
    mail_allow: str = Field(
        "", description="Addresses whose answers count, with commas; empty: nobody's (not even those of `mail_to`)."
    )
    mail_token_days: int = Field(7, ge=1, description="Days within which a notice can be answered.")
    agentmail_inbox: str = Field("", description="Inbox of the school at AgentMail.")
    agentmail_url: str | None = Field(None, description="Address of AgentMail's API; default: the SDK's own.")
    smtp_url: str = Field("", description="`smtps://USER@HOST:PORT` or `smtp://…` (STARTTLS) that notices leave by.")
    imap_url: str = Field("", description="`imaps://USER@HOST:PORT/FOLDER` or `imap://…` (STARTTLS) for answers.")
    mail_from: str = Field("", description="Address of the school's own mailbox (smtp).")
    mail_insecure: bool = Field(False, description="Allow smtp:// and imap:// without encryption (this host only).")
    staff_plugins: str = Field(
        "",
        description="Staff plugins from elsewhere that may run, with commas: `NAME:TRUST`, TRUST being verified, "
        "community or untrusted.",
    )
    fix_rounds: int = Field(3, ge=0, description="How often a bead's work may go back to a new student (R-43).")
    tick_interval: float = Field(60.0, gt=0, description="Pause between two rounds of `school serve` (s).")
    staff_hours: float = Field(24.0, gt=0, description="Hours between two runs of each staff plugin by the tick.")
    tick_tasks: int = Field(4, ge=0, description="Ready tasks and fixes that one tick starts at most.")

    # what is kept, and who removes
    janitor: bool = Field(
        True,
        description="Whether a spawn starts the janitor: a process that finishes and removes what a dead one left.",
    )
    archive_days: int = Field(90, ge=1, description="Days that archived bookbags and evidence are kept.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the home's files, never the current folder's.

        Own settings take the prefix ``SCHOOL_``; those named by the source documents are read without one as well.
        """
        return (init_settings, *(source for _, source in _sources(settings_cls)))

    def home(self) -> Home:
        """Return the home that these settings name."""
        root = self.school_home.expanduser().absolute()
        return Home(
            root=root,
            bookbags=(self.bookbag_dir or root / "bookbag").expanduser().absolute(),
            signals=(self.signal_dir or root / "signals").expanduser().absolute(),
            locks=(self.lock_dir or root / "locks").expanduser().absolute(),
        )


UNPREFIXED = frozenset(
    {
        "school_home",
        "bookbag_dir",
        "signal_dir",
        "lock_dir",
        "handoff_timeout",
        "handoff_poll_interval",
        "default_poll_interval",
        "default_review_timeout",
        "max_session_cycles",
    }
)
"""Settings that the source documents name without a prefix."""


def _own(values: dict[str, Any]) -> dict[str, Any]:
    """Return what may be set with the prefix, or in a file of the home: everything but the home's place."""
    return {name: value for name, value in values.items() if name != "school_home"}


def _sources(settings_cls: type[BaseSettings]) -> list[tuple[str, PydanticBaseSettingsSource]]:
    """Return every source but the command line, strongest first, each with what a person calls it."""
    root = home_root()
    dotenv, toml = root / ".env", root / "school" / "config.toml"
    return [
        ("environment", _Prefixed(settings_cls, env_prefix="SCHOOL_")),
        ("environment", _Unprefixed(settings_cls)),
        (str(dotenv), _PrefixedFile(settings_cls, env_file=dotenv, env_prefix="SCHOOL_")),
        (str(dotenv), _UnprefixedFile(settings_cls, env_file=dotenv)),
        (str(toml), _Toml(settings_cls, toml_file=toml)),
    ]


class _Prefixed(EnvSettingsSource):
    """The environment with the prefix ``SCHOOL_``."""

    def __call__(self) -> dict[str, Any]:
        return _own(super().__call__())


class _Unprefixed(EnvSettingsSource):
    """The environment without a prefix, for the names in UNPREFIXED only."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name in UNPREFIXED}


class _PrefixedFile(DotEnvSettingsSource):
    """The home's ``.env`` with the prefix ``SCHOOL_``."""

    def __call__(self) -> dict[str, Any]:
        return _own(super().__call__())


class _UnprefixedFile(DotEnvSettingsSource):
    """The home's ``.env`` without a prefix, for the names in UNPREFIXED only (it may be Hermes' own file)."""

    def __call__(self) -> dict[str, Any]:
        return _own({name: value for name, value in super().__call__().items() if name in UNPREFIXED})


class _Toml(TomlConfigSettingsSource):
    """``<home>/school/config.toml``. It is the school's alone, so an unknown name in it is a typing error."""

    def __call__(self) -> dict[str, Any]:
        values = super().__call__()
        known = set(self.settings_cls.model_fields) - {"school_home"}
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"{home_root() / 'school' / 'config.toml'} sets {', '.join(unknown)}, which is no setting.",
                next_step="Correct the name; docs/configuration.md lists every setting.",
            )
        return values


def load_settings(**overrides: Any) -> Settings:
    """Return the settings in force.

    Raises:
        ConfigError: a value is not valid, or a file of settings can't be read; the message names the setting and
            what it must be, or the file's folder.
    """
    try:
        return Settings(**overrides)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"The settings in {home_root()} can't be read: {error}.",
            next_step="Correct .env (UTF-8, NAME=value) or school/config.toml (TOML) in that folder.",
        ) from error
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r})" for e in error.errors()]
        raise ConfigError(
            "A setting is not valid: " + "; ".join(lines),
            next_step="Correct it in the environment (SCHOOL_<NAME>), <home>/.env or <home>/school/config.toml; "
            "docs/configuration.md lists every setting.",
        ) from error


def decided_by() -> dict[str, str]:
    """Return who decided each setting: ``environment``, a file's path, or ``default``.

    Raises:
        ConfigError: a file of settings can't be read.
    """
    load_settings()  # says what is wrong, if something is
    found = dict.fromkeys(Settings.model_fields, "default")
    for name, source in reversed(_sources(Settings)):
        found |= dict.fromkeys((field for field in source() if field in found), name)
    return found


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return the process's settings, read once."""
    return load_settings()


def size_bytes(text: str, *, what: str = "") -> int:
    """Return the bytes of a size such as ``512m`` or ``2g`` (powers of 1024).

    Args:
        text: The size.
        what: The option or setting that it was given for, for the error.

    Raises:
        ConfigError: the text is not a size.
    """
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    cleaned = text.strip().lower().removesuffix("b").removesuffix("i")
    factor = units.get(cleaned[-1:], 1)
    number = cleaned[:-1] if cleaned[-1:] in units else cleaned
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 < value < math.inf:
        raise ConfigError(
            f"{what + ' is not' if what else 'Not'} a size: {text!r}.",
            next_step="Write a number with k, m or g, for example 512m or 2g.",
        )
    return int(value * factor)
