"""The review in the principal's own process, for when the teachers are not there (R-14).

The same code with the same keys, one seal per teacher marked ``sync`` (R-39), and both verdicts in one write (R-11).
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag import read_bookbag, verdict_of
from orchestrator.errors import BookbagError, ReviewError
from orchestrator.review.attempts import (
    BACKOFF,
    DEFAULT_ATTEMPTS,
    LONGEST_BACKOFF,
    count_attempt,
    is_parked,
    pick_up,
    put_back,
)
from orchestrator.review.budget import DEFAULT_BUDGET
from orchestrator.review.claim import Claim
from orchestrator.review.evidence import read_evidence
from orchestrator.review.lenses import TEACHERS
from orchestrator.review.model import GateModel, ModelClient
from orchestrator.review.record import record_sync
from orchestrator.review.reviewer import DEFAULT_TIMEOUT, Review, Reviewer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bookbag import Dirs

_NOTHING: Final[Mapping[str, str]] = {}


def gate_reviewers(
    sockets: Mapping[str, str | Path],
    model: str,
    *,
    budget: int = DEFAULT_BUDGET,
    timeout: float = DEFAULT_TIMEOUT,
    personas: Mapping[str, str] = _NOTHING,
) -> dict[str, Reviewer]:
    """Return a reviewer per teacher that asks through that teacher's own gate socket."""
    reviewers = {}
    for teacher, path in sockets.items():
        client: ModelClient = GateModel(path)
        reviewers[teacher] = Reviewer(
            teacher, client, model, budget, persona=personas.get(teacher, ""), timeout=timeout
        )
    return reviewers


def review_now(
    bead: str,
    reviewers: Mapping[str, Reviewer],
    *,
    dirs: Dirs,
    evidence: str | Path,
    keys: Mapping[str, bytes],
    teachers: Sequence[str] = TEACHERS,
    attempts: int = DEFAULT_ATTEMPTS,
    backoff: float = BACKOFF,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Review a bead here and now, as those of ``teachers`` that have not spoken yet, side by side.

    Args:
        bead: The bead.
        reviewers: One per teacher, see ``gate_reviewers``.
        dirs: Bookbags, signals and locks.
        evidence: The folder that holds one folder of evidence per bead.
        keys: Each teacher's seal key, see ``record.read_seal_key``.
        teachers: Whose places are taken.
        attempts: Tries per teacher; then the bead is parked (R-37).
        backoff: Seconds before the second try, doubled before each further one.
        sleep: How to wait.

    Returns:
        The bookbag as written; REVIEWED, unless a teacher that was not among ``teachers`` has still to speak.

    Raises:
        ReviewError: a review could not be made. Nothing is recorded then but the attempts and their reasons.
        BookbagCorruptError: the bookbag can't be read.
    """
    bag = read_bookbag(bead, dirs=dirs)
    if bag is None:
        raise ReviewError(f"There is no bookbag of {bead}.")
    asked = [teacher for teacher in teachers if not verdict_of(bag, teacher)]

    fallback = _Fallback(bead, dirs, evidence, attempts, backoff, sleep)
    futures = [_started(fallback.review, reviewers[teacher]) for teacher in asked]
    try:
        wait(futures)  # all of them: when one fails for good, the other's attempts are counted to the end
        reviews = [future.result() for future in futures]
        return record_sync(bead, [review for review in reviews if review is not None], keys, dirs=dirs)
    finally:  # Ctrl-C, or the other one failed: what was not recorded is nobody's fault and counts as no attempt
        fallback.put_back()


def _started(review: Callable[[Reviewer], Review | None], reviewer: Reviewer) -> Future[Review | None]:
    """Run a review in a thread that does not keep the process alive: who is cancelled must not wait for a model."""
    future: Future[Review | None] = Future()

    def run() -> None:
        try:
            future.set_result(review(reviewer))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asks the future
            future.set_exception(error)

    threading.Thread(target=run, name=f"review as {reviewer.teacher}", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class _Fallback:
    """One bead's review in the teachers' place."""

    bead: str
    dirs: Dirs
    evidence: str | Path
    attempts: int
    backoff: float
    sleep: Callable[[float], None]
    notes: dict[str, str] = field(default_factory=dict)  # teacher -> note of its pick-up, until it failed

    def put_back(self) -> None:
        """Undo the pick-ups that led neither to a verdict nor to a counted attempt."""
        for teacher in list(self.notes):
            if note := self.notes.pop(teacher, ""):
                put_back(self.bead, teacher, note, dirs=self.dirs)

    def review(self, reviewer: Reviewer) -> Review | None:
        """Try until there is a review; None when the teacher has spoken itself meanwhile."""
        with Claim(self.bead, reviewer.teacher, dirs=self.dirs) as claim:
            # without it too: the principal has decided not to wait for whoever holds it
            alone = claim.try_take()
            pause = self.backoff
            while True:
                review, again = self._attempt(reviewer, alone=alone)
                if not again:
                    return review
                self.sleep(pause)
                pause = min(LONGEST_BACKOFF, 2 * pause)

    def _attempt(self, reviewer: Reviewer, *, alone: bool) -> tuple[Review | None, bool]:
        """Return a review, if there is one, and whether to try again."""
        teacher = reviewer.teacher
        note = pick_up(self.bead, teacher, limit=self.attempts, alone=alone, dirs=self.dirs)
        bag = read_bookbag(self.bead, dirs=self.dirs)
        if bag is None:
            raise ReviewError(f"The bookbag of {self.bead} is gone.")
        if verdict_of(bag, teacher):
            return None, False
        if note is None:
            reason = bag.get(f"{teacher}_parked") or "its lock was not to be had in time"
            raise ReviewError(f"{teacher.upper()} can't review {self.bead}: {reason}")
        self.notes[teacher] = note
        try:
            return reviewer.review(bag, read_evidence(self.evidence, self.bead)), False
        except (ReviewError, BookbagError) as error:
            if not self.notes.pop(teacher, ""):  # put back meanwhile
                raise
            after = count_attempt(self.bead, teacher, error.message, note, limit=self.attempts, dirs=self.dirs)
            if after is None or is_parked(after, teacher):
                raise
            return None, True
