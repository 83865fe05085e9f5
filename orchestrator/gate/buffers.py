"""Bounds the memory that request bodies take, so that no student can end the gate of all the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from orchestrator.gate.grants import Grant

GRANT_LIMIT = 48 << 20
"""Bytes of request bodies of one grant in memory at once."""
TOTAL_LIMIT = 128 << 20
"""The same, of all grants together."""
STRUCTURE_LIMIT = 1_000_000
"""Commas and brackets in one body. A JSON value takes up to 200 bytes in memory, its text as few as three."""


@dataclass(slots=True)
class Buffers:
    """What all grants hold together."""

    used: int = 0


class Hold:
    """The bytes of one request; they are given back at the end of the ``with``."""

    def __init__(self, buffers: Buffers, grant: Grant) -> None:
        self._buffers = buffers
        self._grant = grant
        self._size = 0

    def __enter__(self) -> Self:
        """Begin with nothing."""
        return self

    def take(self, size: int) -> bool:
        """Hold ``size`` bytes more; return False when that is too much."""
        if self._grant.buffered + size > GRANT_LIMIT or self._buffers.used + size > TOTAL_LIMIT:
            return False
        self._size += size
        self._grant.buffered += size
        self._buffers.used += size
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        self._grant.buffered -= self._size
        self._buffers.used -= self._size


def too_complex(raw: bytes) -> bool:
    """Return whether parsing this body would take too much memory."""
    return len(raw) > STRUCTURE_LIMIT and sum(raw.count(mark) for mark in (b",", b"[", b"{", b":")) > STRUCTURE_LIMIT
