"""Writing to a person's terminal. A terminal is an interpreter: nothing untrusted reaches it unescaped."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import unicodedata
from typing import TYPE_CHECKING, Any

from orchestrator.errors import OutputError

if TYPE_CHECKING:
    from typing import TextIO

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_SPACES = re.compile(r"\s+")


def safe(text: object, *, limit: int = 4000, lines: bool = False) -> str:
    """Return text with every control, format (bidirectional, zero-width) and surrogate character made visible.

    Args:
        text: Anything.
        limit: Characters kept.
        lines: Whether line breaks and tabs may stay.
    """
    kept: list[str] = []
    for character in str(text)[:limit]:
        if lines and character in "\n\t":
            kept.append(character)
        elif unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
            kept.append(f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}")
        else:
            kept.append(character)
    if len(str(text)) > limit:
        kept.append("…")
    return "".join(kept)


def one_line(text: object, *, limit: int = 100) -> str:
    """Return text as one safe line."""
    return safe(_SPACES.sub(" ", str(text)).strip(), limit=limit)


class Terminal:
    """A stream for people, coloured when it is a terminal that wants it (NO_COLOR is honoured).

    On stderr a reader that goes away (``2>&1 | head``) changes nothing: the work goes on and its outcome counts.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.tty = self.stream.isatty()
        self._may_vanish = self.stream is sys.stderr
        self._lock = threading.Lock()
        self._colour = self.tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def paint(self, text: str, *styles: str) -> str:
        """Return text in a style, where the terminal shows styles."""
        if not self._colour or not styles:
            return text
        return f"\x1b[{';'.join(_COLOURS[style] for style in styles)}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        """Write a line, in one piece: several threads speak."""
        try:
            with self._lock:
                self.stream.write(text + "\n")
                self.stream.flush()
        except OSError:
            if not self._may_vanish:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what Python still holds back goes nowhere

    def table(self, rows: list[list[Any]], header: list[str]) -> None:
        """Write rows in columns, each cell one safe line."""
        cells = [header, *[[one_line(cell, limit=60) for cell in row] for row in rows]]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        for number, row in enumerate(cells):
            text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            self.line(self.paint(text, "dim") if number == 0 else text)


def print_json(data: object) -> None:
    """Write the one JSON object of ``--json`` to stdout.

    Raises:
        OutputError: stdout is closed or full: whoever waits for the object must not take its absence for an outcome.
    """
    try:
        sys.stdout.write(json.dumps(data, default=str) + "\n")
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise OutputError(f"The JSON object could not be written to stdout: {error.strerror}.") from error


def ensure_standard_streams() -> None:
    """Give a closed stdin, stdout or stderr (``2>&-``) somewhere to go, before an opened file takes its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
