"""The light agent's file tools. Every path is resolved, links included, and must lie in the workspace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

MAX_READ = 2 * 1024 * 1024  # bytes of a file that are looked at
DEFAULT_LINES = 800
MAX_SHOWN = 48_000  # characters of one answer
MAX_ENTRIES = 500
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})


class ToolError(Exception):
    """A tool can't do what was asked. The message goes to the model."""


class Files:
    """File operations within one folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(root).resolve()

    def resolve(self, path: str) -> Path:
        """The real path of what the model named, relative to the workspace or absolute within it.

        Raises:
            ToolError: It lies outside the workspace, perhaps through a link.
        """
        if "\0" in path:
            raise ToolError("a path can't hold a NUL")
        try:
            real = (self._root / path).resolve()
        except (OSError, RuntimeError) as error:  # a loop of links
            raise ToolError(f"{path}: {error}") from error
        if real != self._root and self._root not in real.parents:
            raise ToolError(f"{path} is outside the workspace {self._root}")
        return real

    def read(self, path: str, offset: int = 1, limit: int = DEFAULT_LINES) -> str:
        """Lines of a text file, numbered from 1, beginning at line ``offset``."""
        real = self.resolve(path)
        if not real.is_file():
            raise ToolError(f"{path} is not a file")
        with self._open(real, os.O_RDONLY) as file:
            data = file.read(MAX_READ)
        if b"\0" in data[:8192]:
            raise ToolError(f"{path} is a binary file")
        lines = data.decode("utf-8", "replace").splitlines()
        first = max(1, offset)
        shown = lines[first - 1 : first - 1 + max(1, limit)]
        text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(shown, first))
        if len(text) > MAX_SHOWN:
            text = text[:MAX_SHOWN] + "\n[cut: ask for fewer lines]"
        last = first - 1 + len(shown)
        if last < len(lines):
            text += f"\n[{len(lines)} lines in all; go on with offset {last + 1}]"
        return text or "[empty]"

    def write(self, path: str, content: str) -> str:
        """Make or replace a file, and the folders above it."""
        real = self.resolve(path)
        if real.is_dir():
            raise ToolError(f"{path} is a folder")
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror}") from error
        data = content.encode("utf-8", "surrogateescape")
        with self._open(real, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            file.write(data)
        return f"wrote {len(data)} bytes to {path}"

    def edit(self, path: str, old: str, new: str, *, every: bool = False) -> str:
        """Replace ``old``, which must occur exactly once unless ``every``."""
        real = self.resolve(path)
        if not real.is_file():
            raise ToolError(f"{path} is not a file")
        if not old:
            raise ToolError("old is empty; use write_file to make a file")
        with self._open(real, os.O_RDONLY) as file:
            text = file.read().decode("utf-8", "surrogateescape")
        count = text.count(old)
        if count == 0:
            raise ToolError(f"old does not occur in {path}; read the file and copy the text exactly")
        if count > 1 and not every:
            raise ToolError(f"old occurs {count} times in {path}; add lines around it, or set all")
        self.write(path, text.replace(old, new))
        return f"replaced {count} occurrence{'s' if count > 1 else ''} in {path}"

    def listing(self, path: str = ".") -> str:
        """Files below a folder, folders that hold dependencies or git's own data left out."""
        top = self.resolve(path)
        if not top.is_dir():
            raise ToolError(f"{path} is not a folder")
        found: list[str] = []
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(names):
                found.append(str((Path(folder) / name).relative_to(self._root)))
                if len(found) >= MAX_ENTRIES:
                    return "\n".join([*found, f"[stopped at {MAX_ENTRIES} files: name a folder]"])
        return "\n".join(found) or "[no files]"

    def _open(self, real: Path, flags: int) -> IO[bytes]:
        try:
            descriptor = os.open(real, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise ToolError(f"{real}: {error.strerror}") from error
        return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "rb")
