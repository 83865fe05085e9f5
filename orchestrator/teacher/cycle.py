"""One review cycle: one bead, once, by one teacher (R-31).

The bookbag's lock is never held while the model is asked: the claim is.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final

from orchestrator.bookbag import BookbagSignal, read_bookbag
from orchestrator.bookbag.states import awaits
from orchestrator.errors import BookbagError, ReviewError
from orchestrator.review.attempts import count_attempt, is_parked, pick_up, put_back, seconds_until_due
from orchestrator.review.claim import Claim
from orchestrator.review.evidence import read_evidence
from orchestrator.review.record import record_review
from orchestrator.review.visible import visible_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from orchestrator.review.reviewer import Review, Reviewer
    from orchestrator.teacher.config import TeacherConfig
    from orchestrator.teacher.history import History
    from orchestrator.teacher.memory import Memory

log: Final = logging.getLogger("school.teacher")

NEVER: Final = math.inf
"""Nothing more to do for a bead until its flag is raised again."""


class ReviewCycle:
    """Reviews beads as one teacher. Several threads may run it, each on another bead."""

    def __init__(self, config: TeacherConfig, reviewer: Reviewer, key: bytes, history: History, memory: Memory) -> None:
        self._config = config
        self._teacher = config.teacher
        self._dirs = config.dirs
        self._reviewer = reviewer
        self._key = key
        self._history = history
        self._memory = memory
        self._lock = threading.Lock()
        self._picked_up: dict[str, str] = {}  # bead -> note of its pick-up, while its review runs

    def run(self, bead: str) -> float:
        """Review the bead if it is this teacher's to review, and now.

        Returns:
            Seconds until it should be looked at again; NEVER when nothing is left to do for it.
        """
        try:
            bag = read_bookbag(bead, dirs=self._dirs)
            if bag is None or not awaits(bag, self._teacher):
                BookbagSignal(bead, dirs=self._dirs).clear_if_reviewed()  # never while the other verdict is missing
                return NEVER
            if is_parked(bag, self._teacher):
                return NEVER
            if (pause := seconds_until_due(bag, self._teacher, self._config.backoff)) > 0:
                return pause
            with Claim(bead, self._teacher, dirs=self._dirs) as claim:
                return self._review(bead) if claim.try_take() else self._config.poll_interval
        except (BookbagError, OSError) as error:
            log.warning("%s: can't be looked at: %s", bead, visible_line(str(error)))
            return self._config.poll_interval

    def abandon(self) -> None:
        """Put back what is being reviewed, so that the next instance begins with it and no attempt is counted."""
        with self._lock:
            notes = dict(self._picked_up)
        for bead, note in notes.items():
            try:
                put_back(bead, self._teacher, note, dirs=self._dirs)
            except (BookbagError, OSError) as error:
                log.warning("%s: can't be put back: %s", bead, visible_line(str(error)))

    def _review(self, bead: str) -> float:
        note = pick_up(bead, self._teacher, limit=self._config.attempts, dirs=self._dirs)
        if note is None:  # parked just now, reviewed meanwhile, or locked by somebody: the next look tells
            return self._config.poll_interval
        with self._lock:
            self._picked_up[bead] = note
        started = time.monotonic()
        try:
            bag = read_bookbag(bead, dirs=self._dirs) or {}
            evidence = read_evidence(self._config.evidence, bead)
            review = self._reviewer.review(bag, evidence, notes=self._memory.context(self._history.entries()))
            record_review(bead, self._teacher, review, self._key, dirs=self._dirs)
        except (ReviewError, BookbagError) as error:
            return self._failed(bead, note, error.message)
        finally:
            with self._lock:
                del self._picked_up[bead]
        self._reviewed(bag, review, time.monotonic() - started)
        BookbagSignal(bead, dirs=self._dirs).clear_if_reviewed()
        return NEVER

    def _failed(self, bead: str, note: str, reason: str) -> float:
        bag = count_attempt(bead, self._teacher, reason, note, limit=self._config.attempts, dirs=self._dirs)
        log.warning("%s: no review: %s", bead, visible_line(reason))
        self._history.add(bead, reason=visible_line(reason))
        if bag is None:
            return self._config.poll_interval
        if is_parked(bag, self._teacher):
            log.warning("%s: parked after %d attempts", bead, self._config.attempts)
            return NEVER
        return seconds_until_due(bag, self._teacher, self._config.backoff)

    def _reviewed(self, bag: Mapping[str, Any], review: Review, seconds: float) -> None:
        log.info("%s: %s %d after %.1f s", review.bead, review.verdict, review.score, seconds)
        self._history.add(
            review.bead,
            verdict=review.verdict,
            score=review.score,
            confidence=review.confidence,
            lens=review.lens,
            second_look=review.second_look,
            issue_classes=[finding.issue_class for finding in review.findings],
            worst=_worst(review),
            cut=len(review.cut),
            repo=visible_line(str(bag.get("repo", ""))),
            domain=visible_line(str(bag.get("domain", ""))),
            seconds=round(seconds, 3),
            calls=review.usage.calls,
            prompt_tokens=review.usage.prompt_tokens,
            completion_tokens=review.usage.completion_tokens,
        )


def _worst(review: Review) -> str:
    """Return the worst finding in words, for people who read the history."""
    if not review.findings:
        return ""
    finding = review.findings[0]  # they are sorted
    return f"{finding.severity} {visible_line(finding.description, 160)}"
