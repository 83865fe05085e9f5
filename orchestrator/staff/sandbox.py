"""What a plugin gets instead of the school: counted reads, and writes that are only asked for (R-63).

A plugin over a limit is stopped, and nothing that it asked for is carried out; also when it catches what stops it.
This bounds what a plugin does by mistake. It is no wall against hostile code: a plugin runs in this process, which is
why one from elsewhere runs only when a person has named it, and is imported only then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import StaffLimitError
from orchestrator.staff.plugin import Trust

if TYPE_CHECKING:
    from orchestrator.staff.records import Records

MAX_DELTA: Final = 15.0
"""Largest change of a profile's score in one run."""
HUMAN_ABOVE: Final = 10.0
"""A larger change is only proposed: a person makes it."""
NOTE_LIMIT: Final = 1000  # characters


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a plugin may do in one run; None is no limit."""

    reads: int | None
    writes: int | None
    scores: bool


LIMITS: Final = {
    Trust.CORE: Limits(None, None, scores=True),
    Trust.VERIFIED: Limits(500, 50, scores=True),
    Trust.COMMUNITY: Limits(100, 5, scores=False),
    Trust.UNTRUSTED: Limits(20, 0, scores=False),
}


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A change of a profile's score that is asked for."""

    profile: str
    delta: float
    why: str

    @property
    def needs_human(self) -> bool:
        """Whether a person has to make it."""
        return abs(self.delta) > HUMAN_ABOVE


class PluginStopped(BaseException):
    """A plugin asked for more than its trust allows. Not an Exception: a plugin has to end, not to handle it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StaffSandbox:
    """The one thing that a plugin works with. Each record read and each effect asked for counts as one."""

    def __init__(self, records: Records, trust: Trust) -> None:
        self._records = records
        self._limits = LIMITS[trust]
        self._trust = trust
        self.reads = 0
        self.writes = 0
        self.stopped = ""
        self.removals: list[tuple[str, str]] = []
        self.notes: list[tuple[str | None, str]] = []
        self.scores: dict[str, ScoreChange] = {}

    # -- reads -----------------------------------------------------------------------------------------------------

    def beads(self, limit: int) -> list[dict[str, Any]]:
        """Return at most ``limit`` beads, newest first; each counts as a read."""
        return self._rows(self._records.beads, limit)

    def score_changes(self, limit: int) -> list[dict[str, Any]]:
        """Return the last ``limit`` changes of scores, oldest first; each counts as a read."""
        return self._rows(self._records.score_changes, limit)

    def current_scores(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the profiles' scores; each counts as a read."""
        return self._rows(self._records.scores, limit)

    def bookbag(self, bead: str) -> dict[str, Any] | None:
        """Return a bookbag, or None; one read."""
        self._read(1)
        return self._records.bookbag(bead)

    def names(self, area: str) -> list[tuple[str, float]]:
        """Return (name, age in seconds) of an area's files; one read."""
        self._read(1)
        return self._records.names(area)

    def read(self, area: str, name: str) -> bytes | None:
        """Return a file, or None; one read."""
        self._read(1)
        return self._records.read(area, name)

    # -- writes: asked for now, carried out when the run has ended well ---------------------------------------------

    def remove(self, area: str, name: str) -> None:
        """Ask for a file's removal."""
        self._write()
        self._records.check(area, name)
        self.removals.append((area, name))

    def note(self, text: str, *, bead: str | None = None) -> None:
        """Ask for a note in the ledger."""
        self._write()
        self.notes.append((bead, text[:NOTE_LIMIT]))

    def change_score(self, profile: str, delta: float, why: str) -> None:
        """Ask for a change of a profile's score; several of one profile add up.

        More than 15 points stops the plugin; more than 10 become a proposal to a person.
        """
        self._write()
        if not self._limits.scores:
            self._stop(f"a {self._trust} plugin has no right to change scores")
        before = self.scores.get(profile)
        total = delta + (before.delta if before else 0.0)
        if not math.isfinite(total) or abs(total) > MAX_DELTA:
            self._stop(f"a change of {total:g} points for {profile}: at most {MAX_DELTA:g} are allowed")
        self.scores[profile] = ScoreChange(profile, total, f"{before.why}; {why}" if before else why)

    # -- counting --------------------------------------------------------------------------------------------------

    def _rows(self, query: Any, limit: int) -> list[dict[str, Any]]:
        self._read(0)
        left = limit if self._limits.reads is None else min(limit, self._limits.reads - self.reads + 1)
        rows: list[dict[str, Any]] = query(max(0, left))
        self._read(len(rows))
        return rows

    def _read(self, count: int) -> None:
        self._check()
        self.reads += count
        if self._limits.reads is not None and self.reads > self._limits.reads:
            self._stop(f"more than {self._limits.reads} reads")

    def _write(self) -> None:
        self._check()
        self.writes += 1
        if self._limits.writes is not None and self.writes > self._limits.writes:
            self._stop(f"more than {self._limits.writes} writes")

    def _check(self) -> None:
        if self.stopped:
            raise PluginStopped(self.stopped)

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        raise PluginStopped(reason)

    def effects(self) -> list[str]:
        """Return what was asked for, as sentences."""
        lines = [f"remove {area}/{name}" for area, name in self.removals]
        lines += [f"note{f' on {bead}' if bead else ''}: {text}" for bead, text in self.notes]
        lines += [f"score of {c.profile} {c.delta:+g}: {c.why}" for c in self.scores.values() if not c.needs_human]
        return lines

    def proposals(self) -> list[ScoreChange]:
        """Return the changes of scores that a person has to make."""
        return [change for change in self.scores.values() if change.needs_human]

    def commit(self, by: str) -> None:
        """Carry out what was asked for.

        Raises:
            StaffLimitError: the plugin was stopped: nothing of it is carried out.
        """
        if self.stopped:
            raise StaffLimitError(f"{by} was stopped: {self.stopped}.")
        applied = [change for change in self.scores.values() if not change.needs_human]
        self._records.commit(self.removals, self.notes, applied, by)
