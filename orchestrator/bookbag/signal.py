"""Ready flags: which beads wait for a review, without opening a bookbag (R-15 to R-18)."""

from __future__ import annotations

import os

from orchestrator.bookbag import files
from orchestrator.bookbag.bead import check_bead, is_bead
from orchestrator.bookbag.dirs import Dirs
from orchestrator.bookbag.record import TEACHERS, now, verdict_of
from orchestrator.bookbag.store import read_bookbag

SUFFIX = ".ready"


class BookbagSignal:
    """The flag of one bead."""

    def __init__(self, bead: str, *, dirs: Dirs | None = None) -> None:
        self.bead = check_bead(bead)
        self._dirs = dirs or Dirs.from_env()
        self._name = self.bead + SUFFIX

    @property
    def path(self) -> str:
        """Where the flag is, or would be."""
        return f"{self._dirs.signals}/{self._name}"

    def ready(self) -> None:
        """Raise the flag; call it only after the bookbag is complete (R-16). Raising it again wakes watchers again."""
        files.replace_file(self._dirs.signals, self._name, f"{now()}\n".encode())

    def check(self) -> bool:
        """Whether the flag is up: one stat (R-15)."""
        return os.path.lexists(self.path)

    def clear(self) -> None:
        """Take the flag down; a missing one is fine."""
        files.remove_file(self._dirs.signals, self._name)

    def clear_if_reviewed(self) -> bool:
        """Take the flag down only when no teacher needs it any more; return whether it is down now (R-17).

        That is: both verdicts are there, or the bookbag is gone (flags follow bookbags, so a flag alone is stale).

        Raises:
            BookbagCorruptError: The bookbag can't be read; the flag stays.
        """
        bag = read_bookbag(self.bead, dirs=self._dirs)
        if bag is not None and not all(verdict_of(bag, teacher) for teacher in TEACHERS):
            return False
        self.clear()
        return True


def ready_beads(*, dirs: Dirs | None = None) -> list[str]:
    """Return the flagged beads, the longest waiting first. Looks at the signals' folder alone (R-18)."""
    folder = (dirs or Dirs.from_env()).signals
    found = []
    for bead in files.names_in(folder, SUFFIX):
        if not is_bead(bead):
            continue
        try:
            raised = os.lstat(f"{folder}/{bead}{SUFFIX}").st_mtime_ns
        except FileNotFoundError:
            continue  # taken down in between
        found.append((raised, bead))
    return [bead for _, bead in sorted(found)]
