"""A build context, held in memory: its files, their digest, and the tar archive that the engine reads.

The archive is reproducible (sorted, no owner, one fixed time), so the engine's own layer cache works, and
what is in it is decided here, not by what happens to lie in a folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import resources
from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_FIXED_TIME = 1_700_000_000  # any time will do; the same one keeps the engine's cache valid
_NOT_SHIPPED = frozenset({"__pycache__", ".DS_Store"})


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One file: where it lies in the context, what it holds, whether it can be executed."""

    path: str
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The files of one build."""

    files: tuple[ContextFile, ...]

    def digest(self, inputs: Mapping[str, str]) -> str:
        """Return 12 hex digits that change when a file or one of the named inputs does."""
        digest = hashlib.sha256(json.dumps(dict(inputs), sort_keys=True).encode())
        for file in sorted(self.files, key=lambda one: one.path):
            digest.update(json.dumps([file.path, file.executable, len(file.data)]).encode())
            digest.update(file.data)
        return digest.hexdigest()[:12]

    def archive(self) -> bytes:
        """Return the files as an uncompressed tar archive."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for file in sorted(self.files, key=lambda one: one.path):
                info = tarfile.TarInfo(file.path)
                info.size = len(file.data)
                info.mtime = _FIXED_TIME
                info.mode = 0o755 if file.executable else 0o644
                tar.addfile(info, io.BytesIO(file.data))
        return buffer.getvalue()


def folder_files(folder: Path, prefix: str = "") -> tuple[ContextFile, ...]:
    """Return the files under a folder, at ``prefix`` in the context; caches and links are left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_symlink() or not path.is_file() or _NOT_SHIPPED.intersection(relative.parts):
            continue
        found.append(
            ContextFile(f"{prefix}{relative.as_posix()}", path.read_bytes(), bool(path.stat().st_mode & 0o100))
        )
    return tuple(found)


def package_files(members: Iterable[str], prefix: str = "build/lib/orchestrator/") -> tuple[ContextFile, ...]:
    """Return the named rooms and modules of this package as context files.

    Args:
        members: Rooms (``bookbag``) and modules (``errors.py``), relative to the package.
        prefix: Where the package lies in the context.

    Raises:
        ConfigError: a member is missing from this installation.
    """
    found: list[ContextFile] = []
    for member in members:
        path = resources.package() / member
        if path.is_dir():
            found += [file for file in folder_files(path, f"{prefix}{member}/") if not file.path.endswith(".pyc")]
        elif path.is_file():
            found.append(ContextFile(f"{prefix}{member}", path.read_bytes()))
        else:
            raise ConfigError(
                f"{path} is missing from this installation, and an image needs it.",
                next_step="Install the package again.",
            )
    return tuple(found)
