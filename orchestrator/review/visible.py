"""Characters that a reader can't see, or that reorder what is seen, made visible.

Bidirectional overrides, zero-width characters, tags and control characters let a text look different to a person, to
a compiler and to a model ("Trojan Source", CVE-2021-42574). Untrusted text passes through here before a teacher's
model, a log or a terminal gets it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Final

_KEPT: Final = frozenset("\n\t")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# blank or invisible although their category says letter or mark: Hangul fillers, grapheme joiner, variation selectors
_HIDDEN: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


@lru_cache(maxsize=4096)
def _is_hidden(char: str) -> bool:
    return char not in _KEPT and (char in _HIDDEN or unicodedata.category(char) in _HIDDEN_CATEGORIES)


def visible(text: str) -> tuple[str, Counter[str]]:
    """Return the text with every hidden character written as ``[U+202E]``, and how often each occurred.

    Line feed and tab stay. A carriage return before a line feed is dropped without report, a lone one is hidden text.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text, Counter()
    found: Counter[str] = Counter()
    table: dict[int, str] = {}
    for char, count in Counter(text).items():
        if _is_hidden(char):
            name = f"U+{ord(char):04X}"
            found[name] += count
            table[ord(char)] = f"[{name}]"
    return (text.translate(table) if table else text), found


def visible_line(text: str, limit: int = 300) -> str:
    """Return one line of visible text, at most ``limit`` characters: for paths, reasons and headings."""
    line, _ = visible(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
