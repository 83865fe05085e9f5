"""The loop of a teacher: wait for flags, start cycles up to a limit, beat, persist, end when asked to (R-17, R-18)."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from orchestrator.bookbag import ready_beads
from orchestrator.bookbag.signal import SUFFIX
from orchestrator.bookbag.wait import Watcher
from orchestrator.review.claim import sweep_claims
from orchestrator.teacher import health, sleep
from orchestrator.teacher.cycle import NEVER, ReviewCycle
from orchestrator.teacher.history import History
from orchestrator.teacher.memory import Memory

if TYPE_CHECKING:
    from orchestrator.review.reviewer import Reviewer
    from orchestrator.teacher.config import TeacherConfig

log: Final = logging.getLogger("school.teacher")

GRACE: Final = 3.0
"""Seconds that running reviews get to finish at the end; the engine kills two seconds later."""

_PRUNE_EVERY: Final = 10  # reviews


class TeacherLoop:
    """One life of a teacher.

    Which beads were looked at is remembered, so an idle teacher opens no bookbag at all (R-18). What must outlive this
    process (attempts, backoff, verdicts) is in the bookbags.
    """

    def __init__(self, config: TeacherConfig, reviewer: Reviewer, key: bytes) -> None:
        self._config = config
        self._state = sleep.wake(config.sessions, f"teacher-{config.teacher}")
        self._history = History(config.sessions)
        self._memory = Memory(config.sessions, self._state.session_id)
        self._cycle = ReviewCycle(config, reviewer, key, self._history, self._memory)
        self._watcher = Watcher(config.dirs.signals, interval=config.poll_interval)
        self._started = time.time()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread] = {}
        self._next_look: dict[str, float] = {}  # bead -> monotonic time; NEVER until its flag is raised again
        self._raised: set[str] = set()  # beads whose flag was raised again while they were looked at
        self._persisted = 0  # records of the history that are in the session file
        self._pruned = 0

    def stop(self) -> None:
        """Ask the loop to end; callable from a signal handler, also again."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._watcher.wake()

    def run(self) -> None:
        """Review until ``stop()``; then finish what ends soon, put back the rest, and go to sleep."""
        sweep_claims(self._config.teacher, dirs=self._config.dirs)
        log.info("teacher-%s is awake, session %s", self._config.teacher, self._state.session_id)
        with self._watcher:
            while not self._stop.is_set():
                pause = self.start_due()
                self._beat()
                self._settle()
                self._forget(self._watcher.wait(max(0.0, min(pause, self._config.poll_interval, health.BEAT))))
            self._end()

    def review_cycle(self) -> str | None:
        """Review one due bead here and now (R-31); return its id, or None when none was due."""
        for bead in self._due(ready_beads(dirs=self._config.dirs)):
            self._look(bead)
            return bead
        return None

    def start_due(self) -> float:
        """Start a cycle for each due bead, up to the limit; return the seconds until the next one may be due."""
        flagged = ready_beads(dirs=self._config.dirs)
        with self._lock:
            for bead in self._next_look.keys() - set(flagged):
                del self._next_look[bead]
        for bead in self._due(flagged):
            with self._lock:
                if len(self._running) >= self._config.parallel:
                    return NEVER  # the next one that ends wakes the loop
                # daemon: a review that hangs must not keep the process from ending
                thread = threading.Thread(target=self._run_one, args=(bead,), name=f"review {bead}", daemon=True)
                self._running[bead] = thread
            thread.start()
        with self._lock:
            times = [at for bead, at in self._next_look.items() if bead not in self._running]
        return min(times, default=NEVER) - time.monotonic()

    def _due(self, flagged: list[str]) -> list[str]:
        now = time.monotonic()
        with self._lock:
            return [bead for bead in flagged if bead not in self._running and self._next_look.get(bead, 0.0) <= now]

    def _run_one(self, bead: str) -> None:
        try:
            self._look(bead)
        finally:  # whatever happened to this one, the loop goes on
            with self._lock:
                del self._running[bead]
            if not self._stop.is_set():
                self._watcher.wake()

    def _look(self, bead: str) -> None:
        pause = self._config.poll_interval  # stands when the cycle fails in a way that nobody thought of
        try:
            pause = self._cycle.run(bead)
        finally:
            with self._lock:
                again = bead in self._raised
                self._raised.discard(bead)
                self._next_look[bead] = time.monotonic() + (0.0 if again else pause)

    def _forget(self, names: set[str]) -> None:
        """A flag that was raised again asks for another look."""
        with self._lock:
            for name in names:
                bead = name.removesuffix(SUFFIX)
                if bead in self._running:
                    self._raised.add(bead)
                self._next_look.pop(bead, None)

    def _beat(self) -> None:
        with self._lock:
            running = sorted(self._running)
        try:
            health.beat(
                self._config.sessions,
                {
                    "teacher": self._config.teacher,
                    "session_id": self._state.session_id,
                    "running": running,
                    "reviews": self._history.reviews,
                    "failures": self._history.failures,
                    "drifting": self._history.drifting,
                    "notified": self._watcher.notified,
                },
            )
        except OSError as error:  # a full disk: not healthy then, but alive
            log.warning("no heartbeat: %s", error)

    def _settle(self) -> None:
        """Persist the session once a batch of cycles is through."""
        done = self._history.reviews + self._history.failures
        with self._lock:
            busy = bool(self._running)
        if busy or done == self._persisted:
            return
        try:
            history = self._history.entries()
            sleep.persist(self._config.sessions, self._state, history, self._queue(), self._memory.context(history))
            if self._history.reviews - self._pruned >= _PRUNE_EVERY:
                keep = self._config.max_sessions
                sleep.settle(self._config.sessions, self._state, history, started=self._started, keep=keep)
                self._pruned = self._history.reviews
        except OSError as error:
            log.warning("the session can't be persisted: %s", error)
            return
        self._persisted = done

    def _queue(self) -> list[str]:
        """Return the flagged beads that this teacher has not finished with."""
        flagged = ready_beads(dirs=self._config.dirs)
        with self._lock:
            return [bead for bead in flagged if self._next_look.get(bead, 0.0) != NEVER]

    def _end(self) -> None:
        deadline = time.monotonic() + GRACE
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._cycle.abandon()
        try:
            history = self._history.entries()
            sleep.sleep(
                self._config.sessions,
                self._state,
                history,
                self._queue(),
                started=self._started,
                keep=self._config.max_sessions,
                learned=self._memory.context(history),
            )
        except OSError as error:
            log.warning("the session can't be put to sleep: %s", error)
        log.info("teacher-%s is asleep", self._config.teacher)
