"""The janitor: finishes and removes what dead principals left. One per home; started by a spawn; ends by itself.

It waits without cost: the kernel tells it when a lease's holder is gone (closing the lock's file is an event of the
leases' folder), and only then a worker is started that opens the school and adopts the bead (``principal.resume``). So
this process loads neither the engine's client nor the settings, and no container needs the engine's socket for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bookbag.wait import Watcher
from orchestrator.errors import LedgerError
from orchestrator.principal.lease import Lease, bead_lease_path, held
from orchestrator.principal.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.home import Home

LOOK_SECONDS = 60.0
"""How often it looks without being told: file systems that don't notify, a ledger that was locked."""

SETTLE_SECONDS = 0.05
"""The event of a lock's closing comes an instant before the lock is free."""

FIRST_RETRY, LAST_RETRY = 5.0, 300.0
"""Seconds between two attempts at a bead whose removal failed."""

ATTEMPTS = 60
"""After these (some hours) it gives a bead up; the sweep of the next spawn and `school gc` try again."""

WORKERS = 4


def lock_path(leases: Path) -> Path:
    """Return the janitor's own lock."""
    return leases / "janitor.lock"


def start_janitor(home: Home) -> bool:
    """Start a janitor for a home unless it has one; return whether one was started.

    It gets a session of its own, so that a closed terminal does not reach it. Where a CI runner or a logout ends
    such processes all the same, the other layers hold: the lifetime cap, and the sweep of the next command.
    """
    if held(lock_path(home.leases)):
        return False
    log = home.logs / "janitor.log"
    with log.open("ab") as sink:
        log.chmod(0o600)
        child = subprocess.Popen(
            # a double start: this child ends at once, so that no spawn is the janitor's parent and none has to wait
            [sys.executable, "-I", "-S", "-c", _LAUNCH, sys.executable, str(home.root)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd="/",
            start_new_session=True,
        )
    child.wait()
    return True


_LAUNCH = (
    "import os, sys\n"
    "if os.fork() == 0:\n"
    "    os.execv(sys.argv[1], [sys.argv[1], '-m', 'orchestrator.principal.janitor', sys.argv[2]])\n"
)


@dataclass(slots=True)
class _Case:
    """One abandoned bead."""

    attempts: int = 0
    due: float = 0.0  # monotonic
    worker: subprocess.Popen[bytes] | None = None


@dataclass(slots=True)
class Janitor:
    """Waits for leases to become free, and has their beads adopted."""

    leases: Path
    ledger: Path
    say: Callable[[str], None]
    linger: float = 1.0  # seconds that it stays although there is nothing to guard: the next bead is often near
    _cases: dict[str, _Case] = field(default_factory=dict)
    _stop: bool = False

    def run(self) -> bool:
        """Guard until nothing is left to guard; return False when another janitor is there."""
        while True:
            lease = Lease.take(lock_path(self.leases), patience=0.2)
            if lease is None:
                return False
            try:
                self._guard()
            finally:
                lease.release()  # workers that still run hold their beads' leases, and go on
            # a bead may have been opened while the lock still looked held to its spawn
            if self._stop or not self._open() - self._given_up():
                return True

    def stop(self, *_: Any) -> None:
        """End soon; for a signal's handler."""
        self._stop = True

    def _guard(self) -> None:
        idle_since: float | None = None
        with Watcher(self.leases, interval=LOOK_SECONDS) as watcher, _woken_by_signals(watcher, self.stop):
            while not self._stop:
                open_beads = self._open()
                self._look(open_beads)
                now = time.monotonic()
                if open_beads - self._given_up():
                    idle_since = None
                elif idle_since is None:
                    idle_since = now
                elif now - idle_since >= self.linger:
                    self._tidy(open_beads)
                    return
                pause = LOOK_SECONDS if idle_since is None else self.linger
                dues = [case.due - now for case in self._cases.values() if case.worker is None and case.due > now]
                self._wait(watcher, max(0.02, min([pause, *dues])))

    @staticmethod
    def _wait(watcher: Watcher, seconds: float) -> None:
        """Wait for something about a bead, a worker's end, or the time; other locks come and go."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            names = watcher.wait(left)
            if not names:  # woken, or the time is up
                return
            if any(name.startswith("bead-") for name in names):
                time.sleep(SETTLE_SECONDS)
                return

    def _open(self) -> set[str]:
        """Return the beads whose work or removal is not done."""
        try:
            with Ledger(self.ledger) as ledger:
                return {row["bead"] for row in ledger.beads(running=True)}
        except LedgerError as error:
            self.say(error.message)
            return set(self._cases)

    def _given_up(self) -> set[str]:
        return {bead for bead, case in self._cases.items() if case.attempts >= ATTEMPTS}

    def _tidy(self, open_beads: set[str]) -> None:
        """Remove the lock files of beads that are done: of a principal that died between its last note and its end."""
        for path in self.leases.glob("bead-*.lock"):
            if path.name.removeprefix("bead-").removesuffix(".lock") not in open_beads and not held(path):
                lease = Lease.take(path)
                if lease is not None:
                    lease.release(forget=True)

    def _look(self, open_beads: set[str]) -> None:
        """Collect what workers did, and start one for each bead that is open and that nobody drives."""
        now = time.monotonic()
        for bead, case in list(self._cases.items()):
            if case.worker is not None and (code := case.worker.poll()) is not None:
                case.worker = None
                case.attempts += 1
                case.due = now + (0.0 if code < 0 else min(FIRST_RETRY * 2 ** (case.attempts - 1), LAST_RETRY))
            if case.worker is None and bead not in open_beads:
                del self._cases[bead]
        for bead in sorted(open_beads):
            case = self._cases.get(bead) or _Case()
            at_work = sum(other.worker is not None for other in self._cases.values())
            if case.worker is not None or case.due > now or case.attempts >= ATTEMPTS or at_work >= WORKERS:
                continue
            if held(bead_lease_path(self.leases, bead)):
                continue
            self._cases[bead] = case
            self.say(f"{bead}: nobody drives it; adopting")
            case.worker = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.principal.resume", bead],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at a janitor in the foreground is not for the bead
            )


@contextlib.contextmanager
def _woken_by_signals(watcher: Watcher, stop: Callable[..., None]) -> Any:
    """Wake the watcher when a worker ends, and end at SIGTERM or SIGINT."""

    def ended(*_: Any) -> None:
        watcher.wake()

    def asked(*_: Any) -> None:
        stop()
        watcher.wake()

    handlers = {signal.SIGCHLD: ended, signal.SIGTERM: asked, signal.SIGINT: asked}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """Run as a process of its own; the home's folder is the argument."""

    def say(text: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201 - its log

    school = Path(sys.argv[1]) / "school"
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.nice(5)
    Janitor(school / "leases", school / "ledger.db", say).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
