"""Waiting for the two verdicts, and what is done when they do not come (R-14, R-37, R-47, R-48).

The bookbag is the only thing believed: no teacher is asked how it is getting on. A verdict counts once its seal
verifies for this bead, this commit and the evidence that the principal wrote.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.errors import SealError

if TYPE_CHECKING:
    from orchestrator.settings import Settings

TEACHERS = ("cto", "coo")
Keys = Mapping[str, bytes] | Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a seal must be about to count."""

    bead: str
    head_sha: str
    evidence_sha256: str
    keys: Keys  # of each teacher: its key, or every key that counts by its name


@dataclass(slots=True)
class Verdicts:
    """How the wait ended.

    Attributes:
        bag: The bookbag as last read.
        missing: Teachers whose verdict is not there, or does not count.
        parked: Teachers that gave up after their attempts, with their reason.
        problems: Seals that do not verify, in words.
        picked_up: Whether every missing teacher had begun.
    """

    bag: dict[str, Any]
    missing: tuple[str, ...] = ()
    parked: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    picked_up: bool = False


def check_seals(bag: Mapping[str, Any], expected: Expected) -> dict[str, str]:
    """Return the teachers whose verdict does not count, each with the reason ("" for: no verdict yet)."""
    bad: dict[str, str] = {}
    for teacher in TEACHERS:
        if not bookbag.verdict_of(bag, teacher):
            bad[teacher] = ""
            continue
        try:
            if bag.get("bead") != expected.bead or bag.get("head_sha") != expected.head_sha:
                raise SealError("the bookbag is about another bead or another commit")
            bookbag.verify_seal(expected.keys[teacher], bag, teacher)
            seal = bag.get(f"{teacher}_seal") or {}
            if seal.get("evidence_sha256") != expected.evidence_sha256:
                raise SealError("the seal is about other evidence")
        except SealError as error:
            bad[teacher] = f"{teacher.upper()}'s seal does not verify: {error.message}"
    return bad


def wait_for_verdicts(expected: Expected, dirs: bookbag.Dirs, settings: Settings) -> Verdicts:
    """Wait until both verdicts count, or no more is to be hoped for.

    ``handoff_timeout`` bounds the wait for a pick-up and each stretch without progress; while a teacher is at work
    a stretch may also last one review and its backoff.
    """
    started = time.monotonic()
    last_change, last_bag = started, ""
    patience = max(settings.handoff_timeout, settings.default_review_timeout + 30.0)
    with bookbag.Watcher(dirs.bookbags) as watcher:
        while True:
            bag = bookbag.read_bookbag(expected.bead, dirs=dirs)
            if bag is None:
                return Verdicts({}, missing=TEACHERS, problems=("the bookbag is gone",))
            bad = check_seals(bag, expected)
            parked = {t: str(bag[f"{t}_parked"]) for t in TEACHERS if t in bad and bag.get(f"{t}_parked")}
            forged = tuple(reason for reason in bad.values() if reason)
            waiting = [t for t in bad if t not in parked and not bad[t]]
            picked_up = all(_picked_up(bag, t) for t in waiting)
            if not waiting:
                return Verdicts(bag, tuple(bad), parked, forged, picked_up=True)
            now = time.monotonic()
            if repr(bag) != last_bag:
                last_bag, last_change = repr(bag), now
            allowed = patience if picked_up else settings.handoff_timeout
            if now - last_change > allowed:
                return Verdicts(bag, tuple(bad), parked, forged, picked_up=picked_up)
            watcher.wait(min(settings.handoff_poll_interval, max(0.05, allowed - (now - last_change))))


def _picked_up(bag: Mapping[str, Any], teacher: str) -> bool:
    return bool(bag.get(f"{teacher}_picked_up_at") or bag.get(f"{teacher}_attempts") or bag.get(f"{teacher}_parked"))
