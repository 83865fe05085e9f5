"""Turn the .gitignore files of a commit into one list that holds whatever the student writes into its own.

A pattern of ``D/.gitignore`` becomes one anchored at ``D``; deeper files come later, because the last match decides
and a deeper file beats a shallower one (gitignore(5)). Git then answers for a path by this list alone, in an empty
work tree, without looking at the student's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OWN_EXCLUDES = b"/.hermes/briefs/\n/.hermes/outputs/\n/.hermes/results/\n"
"""Where the school's own files lie in a worktree (R-23); never part of a result."""


def compile_excludes(files: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return one exclude file for many.

    Args:
        files: Pairs of folder (no slashes at its ends, b"" for the root) and content of its ``.gitignore``.
    """
    lines: list[bytes] = []
    for folder, content in sorted(files, key=lambda item: (bool(item[0]), item[0].count(b"/"))):
        for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            line = _anchored(folder, _trimmed(raw if raw.startswith(b"#") else raw.removesuffix(b"\r")))
            if line:
                lines.append(line)
    return b"".join(line + b"\n" for line in lines)


def _trimmed(line: bytes) -> bytes:
    """Cut trailing spaces that no backslash protects."""
    end = 0
    position = 0
    while position < len(line):
        if line[position : position + 1] == b"\\":
            position += 2
            end = position
            continue
        position += 1
        if line[position - 1 : position] != b" ":
            end = position
    return line[:end]


def _anchored(folder: bytes, line: bytes) -> bytes:
    if not line or line.startswith(b"#"):
        return b""
    if not folder:
        return line
    negation = b"!" if line.startswith(b"!") else b""
    pattern = line.removeprefix(b"!")
    core = pattern.removesuffix(b"/")
    if not core:
        return b""
    place = re.sub(rb"([\\*?\[\]])", rb"\\\1", folder).replace(b"\n", b"?")
    middle = b"/" if b"/" in core else b"/**/"
    return negation + b"/" + place + middle + pattern.removeprefix(b"/")
