"""Write a git dir by hand: a handful of small files, no process. Used for the trusted one and for the student's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

RAW_CONTENT = "* -text -filter -ident -working-tree-encoding\n"
"""Attributes under which a file's bytes are its blob's bytes: no conversion, and no filter, which is a program."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A name for commits."""

    name: str
    email: str

    def line(self, when: int) -> str:
        """Return it as it stands in a commit, with a time in seconds; what would break the line is left out."""
        name, email = (
            "".join(c for c in text if c.isprintable() and c not in "<>") for text in (self.name, self.email)
        )
        return f"{name.strip()} <{email.strip()}> {when} +0000"


PRINCIPAL = Identity("School Principal", "principal@school.invalid")
STUDENT = Identity("Student", "student@school.invalid")


def write_git_dir(
    path: Path,
    *,
    object_format: str,
    head: str,
    alternates: Sequence[str] = (),
    shallow: bytes = b"",
    packed_refs: bytes = b"",
    exclude: bytes = b"",
    config: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Make the git dir ``path``, which must not exist.

    Args:
        path: The folder.
        object_format: ``sha1`` or ``sha256``.
        head: Content of HEAD.
        alternates: Folders of objects, as git will see them.
        shallow: Content of the file ``shallow``; empty for none.
        packed_refs: Content of ``packed-refs``; empty for none.
        exclude: Content of ``info/exclude``.
        config: More sections of the configuration.
    """
    sections: dict[str, dict[str, str]] = {
        "core": {
            "repositoryFormatVersion": "0" if object_format == "sha1" else "1",
            "fileMode": "true",
            "bare": "false",
            "logAllRefUpdates": "true",
        },
        "gc": {"auto": "0"},
        "maintenance": {"auto": "false"},
    }
    if object_format != "sha1":
        sections["extensions"] = {"objectFormat": object_format}
    for section, values in (config or {}).items():
        sections.setdefault(section, {}).update(values)
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    files = {
        "HEAD": head.encode() + b"\n",
        "config": b"".join(
            f"[{section}]\n".encode() + b"".join(f'\t{key} = "{value}"\n'.encode() for key, value in values.items())
            for section, values in sections.items()
        ),
        "info/attributes": RAW_CONTENT.encode(),
        "info/exclude": exclude,
        "objects/info/alternates": b"".join(os.fsencode(quoted(one)) + b"\n" for one in alternates),
        "shallow": shallow,
        "packed-refs": packed_refs,
    }
    for name, content in files.items():
        if content:
            (path / name).write_bytes(content)


def quoted(path: str) -> str:
    """Return a path as a line of an alternates file: quoted where it would not be read as it stands."""
    if not path.startswith(("#", '"')) and "\n" not in path:
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
