"""``.school.toml``: what a repository says of itself. It counts as of base_sha, never as in the working tree.

::

    [student]
    packages = ["libpq-dev"]                  # of the image's distribution, installed first
    setup = ["python3 -m pip install -e ."]   # run in the tree at /workspace, as root, with network, without secrets
    image = "python:3.12"                     # start from this image instead of the plain student's …
    dockerfile = "ci/Dockerfile"              # … or from what this file builds
    cache_files = ["src/**/*.c"]              # set up again when one of these changes (manifests and lock files always)

    [verify]
    command = "python3 -m pytest"             # the check that the work must pass

    [objects]
    mode = "reachable"                        # copy only what base_sha reaches; default "shared"

    [egress]
    allow = ["files.example.org:443"]         # counts as far as SCHOOL_EGRESS_ALLOW has it too
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from orchestrator.errors import ConfigError
from orchestrator.gate.place import valid_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE = ".school.toml"
ObjectsMode = Literal["shared", "reachable"]

KEYS: dict[str, dict[str, type]] = {
    "student": {"packages": list, "setup": list, "image": str, "dockerfile": str, "cache_files": list},
    "verify": {"command": str},
    "objects": {"mode": str},
    "egress": {"allow": list},
}
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:=~-]*", re.IGNORECASE)
_NEXT = f"Correct it, commit it, and repeat; `school setup --repo .` prints an example of {FILE}."


@dataclass(frozen=True, slots=True)
class RepoConfig:
    """The settings of one repository. Empty means: not set."""

    packages: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    image: str = ""
    dockerfile: str = ""
    cache_files: tuple[str, ...] = ()
    verify: str = ""
    objects: ObjectsMode = "shared"
    egress: tuple[str, ...] = ()
    image_named_by: str = FILE

    @property
    def has_image(self) -> bool:
        """Whether the repository needs an image other than the plain student's."""
        return bool(self.packages or self.setup or self.image or self.dockerfile)


def read_config(read: Callable[[str], bytes | None]) -> RepoConfig:
    """Return the repository's settings; the empty ones when it has no ``.school.toml``.

    Args:
        read: Returns a file's content as of base_sha, or None.

    Raises:
        ConfigError: the file is wrong; the message names the key and its line.
    """
    data = read(FILE)
    if data is None:
        return RepoConfig()
    try:
        return parse_config(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{FILE} is not UTF-8 text (byte {error.start}).", next_step=_NEXT) from error


def parse_config(text: str) -> RepoConfig:
    """Return the settings in the text of a ``.school.toml``.

    Raises:
        ConfigError: not TOML, an unknown key, or a value of the wrong kind.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{FILE} is not valid TOML: {error}.", next_step=_NEXT) from error
    values: dict[str, Any] = {}
    for section, content in document.items():
        known = KEYS.get(section)
        if known is None:
            raise _wrong(text, section, f"[{section}] is not known; known are {_listed(KEYS)}")
        if not isinstance(content, dict):
            raise _wrong(text, section, f"{section} must be a table: [{section}]")
        for key, value in content.items():
            if key not in known:
                raise _wrong(text, key, f"{section}.{key} is not known; known in [{section}] are {_listed(known)}")
            values[f"{section}.{key}"] = _checked(text, section, key, value, known[key])
    return _assemble(text, values)


def _checked(text: str, section: str, key: str, value: object, kind: type) -> object:
    if kind is list:
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise _wrong(text, key, f"{section}.{key} must be a list of texts that are not empty")
        return tuple(value)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(text, key, f"{section}.{key} must be a text that is not empty")
    return value


def _assemble(text: str, values: dict[str, Any]) -> RepoConfig:
    config = RepoConfig(
        packages=values.get("student.packages", ()),
        setup=values.get("student.setup", ()),
        image=values.get("student.image", ""),
        dockerfile=values.get("student.dockerfile", ""),
        cache_files=values.get("student.cache_files", ()),
        verify=values.get("verify.command", ""),
        objects=values.get("objects.mode", "shared"),
        egress=values.get("egress.allow", ()),
    )
    if config.image and config.dockerfile:
        raise _wrong(text, "dockerfile", "student.image and student.dockerfile exclude each other")
    if config.objects not in get_args(ObjectsMode):
        raise _wrong(text, "mode", f"objects.mode must be one of {_listed(get_args(ObjectsMode))}")
    for place in config.egress:
        if not valid_place(place):
            raise _wrong(text, "allow", f"egress.allow: {place!r} is not name:port, for example files.example.org:443")
    for package in config.packages:
        if not _PACKAGE.fullmatch(package):
            raise _wrong(text, "packages", f"student.packages: {package!r} is not the name of a package")
    if config.dockerfile.startswith("/") or ".." in config.dockerfile.split("/"):
        raise _wrong(text, "dockerfile", "student.dockerfile must be a path inside the repository")
    return config


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _wrong(text: str, word: str, problem: str) -> ConfigError:
    """Return the error with the line on which the key stands."""
    pattern = re.compile(rf'^\s*(\[\s*)?["\']?(\w+\.)?{re.escape(word)}["\']?\s*[\].=]')
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)]
    place = f"{FILE}, line {numbers[0]}" if numbers else FILE
    return ConfigError(f"{place}: {problem}.", next_step=_NEXT)
