"""Ending a bead on request: Ctrl-C, SIGTERM, SIGHUP, a closed terminal, or ``school cancel`` from elsewhere.

A signal raises ``CancelledError`` in the main thread, wherever it waits; from the moment the bead's end is being
written, signals are noted and disturb nothing. A request from elsewhere is a file beside the lease: it reaches the
driver in whatever PID namespace it lives, and whoever adopts the bead after the driver's death finds it too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from orchestrator.bookbag.wait import Watcher
from orchestrator.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.home import Home

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 3.0
"""A second signal this much later counts again: the first may have been swallowed where nothing can raise."""


def request_path(home: Home, bead: str) -> Path:
    """Return the file that asks the bead's driver to end it."""
    return home.leases / f"cancel-{bead}"


def requested(home: Home, bead: str) -> bool:
    """Return whether somebody asked for the bead's end."""
    return request_path(home, bead).exists()


class Cancellation:
    """How the work of this process can be ended. Without ``installed()`` (a library's use) only by its caller."""

    def __init__(self) -> None:
        self._raised_at: float | None = None
        self._shielded = False
        self._installed = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[Cancellation]:
        """Turn signals into CancelledError for the block; in another thread than the main one: nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before: dict[int, Any] = {}
        for number in map(int, SIGNALS):
            # what is ignored stays so: nohup, or a shell's background job
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, self._take)
        self._installed = True
        try:
            yield self
        finally:
            self._installed = False
            for number, handler in before.items():
                # a cancelled process is on its way out: one more Ctrl-C must not change how it ends
                signal.signal(number, signal.SIG_IGN if self.cancelled else handler)

    @property
    def cancelled(self) -> bool:
        """Whether a signal ended something."""
        return self._raised_at is not None

    def shield(self) -> None:
        """From here on signals are ignored: what follows writes the end and removes."""
        self._shielded = True

    @contextlib.contextmanager
    def listening(self, home: Home, bead: str) -> Iterator[None]:
        """Listen for a request from elsewhere during the block.

        The block is left with the request's file gone. It also lifts the shield of a bead before.
        """
        self._shielded = False
        path = request_path(home, bead)
        if not self._installed:
            yield
            return
        watcher = Watcher(home.leases)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                if path.exists():
                    os.kill(os.getpid(), signal.SIGTERM)  # the main thread's handler raises, whatever it waits for
                    return
                watcher.wait()

        thread = threading.Thread(target=listen, name="cancel", daemon=True)
        try:
            thread.start()  # inside: a request that lies there already raises before the block is entered
            yield
        finally:
            over.set()
            watcher.wake()
            if thread.ident is not None:  # a signal may come before it was started
                thread.join(timeout=10)
            watcher.close()
            path.unlink(missing_ok=True)

    def _take(self, number: int, _frame: Any) -> None:
        now = time.monotonic()
        if self._shielded or (self._raised_at is not None and now - self._raised_at < AGAIN_SECONDS):
            return
        self._raised_at = now
        raise CancelledError(f"Cancelled by {signal.Signals(number).name}.")
