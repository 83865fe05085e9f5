"""Where bookbags, signals and locks lie (R-8). Light: no ``pathlib``, a leaf's entry point may come through here."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike


class Dirs:
    """Three folders: bookbags, signals, locks. Immutable; several schools run side by side (R-8)."""

    __slots__ = ("bookbags", "locks", "signals")

    bookbags: str
    signals: str
    locks: str

    def __init__(self, bookbags: str | PathLike[str], signals: str | PathLike[str], locks: str | PathLike[str]) -> None:
        object.__setattr__(self, "bookbags", os.fspath(bookbags))
        object.__setattr__(self, "signals", os.fspath(signals))
        object.__setattr__(self, "locks", os.fspath(locks))

    @classmethod
    def from_env(cls) -> Dirs:
        """Read ``BOOKBAG_DIR``, ``SIGNAL_DIR`` and ``LOCK_DIR`` now.

        What is unset or empty lies under ``SCHOOL_HOME`` (default ``~/.hermes``).
        """
        home = os.environ.get("SCHOOL_HOME") or "~/.hermes"

        def folder(variable: str, name: str) -> str:
            return os.path.abspath(os.path.expanduser(os.environ.get(variable) or os.path.join(home, name)))  # noqa: PTH100, PTH111, PTH118 - pathlib costs a leaf 14 ms

        return cls(folder("BOOKBAG_DIR", "bookbag"), folder("SIGNAL_DIR", "signals"), folder("LOCK_DIR", "locks"))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Dirs is immutable: {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dirs):
            return NotImplemented
        return (self.bookbags, self.signals, self.locks) == (other.bookbags, other.signals, other.locks)

    def __hash__(self) -> int:
        return hash((self.bookbags, self.signals, self.locks))

    def __repr__(self) -> str:
        return f"Dirs(bookbags={self.bookbags!r}, signals={self.signals!r}, locks={self.locks!r})"
