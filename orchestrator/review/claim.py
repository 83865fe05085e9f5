"""The right to review one bead as one teacher, held while the model is asked.

A kernel lock of its own beside the bookbag's: the bookbag's lock must stay free during a model call, and two instances
of one teacher (the old one still ending, or the principal in its place) must not both spend tokens on a bead. The
kernel frees it at the holder's death, so a bead of a killed teacher is the next instance's at once (R-36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orchestrator.bookbag import Dirs, files, is_bead
from orchestrator.bookbag.lock import BeadLock

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


_SUFFIX: Final = ".claim"


class Claim(BeadLock):
    """Taken or not after ``try_take()``; as a context manager it is given back, and its file removed, at the end."""

    def __init__(self, bead: str, teacher: str, *, dirs: Dirs | None = None) -> None:
        super().__init__(bead, 0.0, dirs=dirs)
        self._name = f"{bead}~{teacher}{_SUFFIX}"  # "~" is in no bead id, so no bead's own lock has this name

    def try_take(self) -> bool:
        """Take it when it is free; return whether it was taken."""
        return self.acquire(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(unlink=True)


def sweep_claims(teacher: str, *, dirs: Dirs | None = None) -> int:
    """Remove the files of claims that nobody holds any more (their teacher was killed); return how many."""
    where = dirs or Dirs.from_env()
    ending = f"~{teacher}{_SUFFIX}"
    removed = 0
    for bead in files.names_in(where.locks, ending):
        if is_bead(bead):
            with Claim(bead, teacher, dirs=where) as claim:
                removed += claim.try_take()
    return removed
