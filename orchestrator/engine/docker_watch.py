"""Listens to one Docker container from before its start until its end is known.

Two connections, opened before the start: its output (attach) and its events. The ``die`` event carries the exit
code and comes after any ``oom`` event, so the events alone say how it ended; measured against POST /wait with
condition next-exit they cost one connection less, and they also tell of a removal before any start, at which
next-exit waits for ever. The engine keeps the streams of a container that removes itself until they are read.

When the engine itself goes away, both are opened again for as long as ``RECONNECT_BUDGET`` allows, and the
engine is asked what became of the container: that answer is the truth, or the container is lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import (
    Container,
    Exited,
    Lost,
    Pending,
    Rejected,
    Running,
    State,
    WaitResult,
)
from orchestrator.engine.docker_spec import filters_json
from orchestrator.errors import ContainerNotFoundError, EngineError, EnginePermissionError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.engine.docker_client import ClientPool, Stream

STDERR_TAIL = 64 * 1024
QUEUE_BYTES = 4 * 1024 * 1024  # output held for a reader that is behind; then the container waits at its pipe
RECONNECT_BUDGET = 90.0  # seconds; an engine that is upgraded is away for less
OOM_LINGER = 0.3  # seconds; on SIGKILL the oom event was seen to come after die, by a few ms
CONFIRM_EVERY = 2.0  # seconds; how often the engine is asked once the output ended and no event has come
CLOCK_SKEW = 3600  # seconds; events are asked for from this long ago, as the engine's clock may differ
_ACTIONS = ("start", "oom", "die", "destroy")
_ENDED = (State.EXITED, State.DEAD)


class DockerWatch:
    """See ``base.Watch``. Made by ``DockerEngine.watch``."""

    def __init__(
        self,
        clients: ClientPool,
        inspect: Callable[[str], Container],
        container: Container,
        *,
        line_limit: int,
    ) -> None:
        self._clients = clients
        self._inspect = inspect
        self._id = container.id
        self._where = f"{container.name} at {clients.endpoint}"
        self._changed = threading.Condition()
        self._result: WaitResult | None = None
        self._started = container.state not in (State.CREATED, *_ENDED)
        self._oom = False
        self._closed = False
        self._output_ended = False
        self._reconnecting = False
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._readers = 0
        self._waiters = 0
        self._stderr = bytearray()
        self._splitter = _Splitter(line_limit)
        self._streams: list[Stream] = []
        if container.state in _ENDED:
            self._result = _exited(container)
        self._output = self._open_output(history=container.state is not State.CREATED, follow=self._result is None)
        try:
            self._events = self._open_events()
        except EngineError:
            self._output.close()
            raise
        self._threads = [
            threading.Thread(target=target, name=f"{name}-{container.name}", daemon=True)
            for name, target in (("output", self._read_output), ("events", self._read_events))
        ]
        for thread in self._threads:
            thread.start()

    # -- what callers use ------------------------------------------------------------------------------------

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of stdout as they come. A reader that stays behind by 4 MiB slows the container down."""
        with self._changed:
            self._readers += 1
        try:
            while (line := self._next_line()) is not None:
                yield line
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def _next_line(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._output_ended or self._closed)
            if self._closed or not self._lines:
                return None
            line = self._lines.popleft()
            self._queued -= len(line)
            self._changed.notify_all()
            return line

    def stderr_tail(self) -> bytes:
        """Return the last 64 KiB of stderr so far; complete once ``lines()`` has ended."""
        with self._changed:
            return bytes(self._stderr)

    def wait(self, timeout: float | None = None) -> WaitResult:
        """Return how the container ended, or ``Running``/``Pending`` after ``timeout`` seconds.

        While somebody waits and nobody reads ``lines()``, the oldest lines beyond 4 MiB are dropped, so that
        a container which prints without a listener can still end.
        """
        with self._changed:
            self._waiters += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._result is not None or self._closed, timeout)
            finally:
                self._waiters -= 1
            if self._result is not None:
                return self._result
            return Running(self._where) if self._started else Pending("created and not started")

    def close(self) -> None:
        """Stop listening; ends a blocked ``lines()`` and ``wait()``. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._cut()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _cut(self) -> None:
        with self._changed:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()

    # -- the connections -------------------------------------------------------------------------------------

    def _open_output(self, *, history: bool, follow: bool = True) -> Stream:
        # without an Upgrade header the engine answers with a plain body that ends when the output ends
        params = {"stream": int(follow), "stdout": 1, "stderr": 1, "logs": int(history)}
        return self._open("POST", f"/containers/{self._id}/attach", params, "attach to")

    def _open_events(self) -> Stream:
        params = {
            "since": int(time.time() - CLOCK_SKEW),
            "filters": filters_json({"type": ["container"], "container": [self._id], "event": list(_ACTIONS)}),
        }
        return self._open("GET", "/events", params, "listen to the events of")

    def _open(self, method: str, path: str, params: dict[str, Any], doing: str) -> Stream:
        stream = self._clients.stream(method, path, params, doing=f"{doing} the container {self._where}")
        with self._changed:
            self._streams.append(stream)
            closed = self._closed
        if closed:  # close() came between
            stream.close()
        return stream

    # -- the end ---------------------------------------------------------------------------------------------

    def _read_events(self) -> None:
        while not self._settled():
            with contextlib.suppress(EngineUnavailableError):  # the engine went away: see below
                for event in self._events.objects():
                    self._take_event(event)
                    if self._settled():
                        break
            if not self._settled():
                self._reconnecting = True
                self._reconnect()
                self._reconnecting = False
        self._events.close()

    def _take_event(self, event: dict[str, Any]) -> None:
        action = event.get("Action") or event.get("status")
        if action == "start":
            with self._changed:
                self._started = True
                self._changed.notify_all()
        elif action == "oom":
            self._oom = True
        elif action == "die":
            code = int(event["Actor"]["Attributes"].get("exitCode", -1))
            if code == 137 and not self._oom:
                self._linger()
            self._settle(Exited(code, oom=self._oom))
        elif action == "destroy":
            self._settle(
                Lost(f"{self._where}: removed") if self._started else Rejected("removed before it was started")
            )

    def _linger(self) -> None:
        """Read on for a late oom event; a timer cuts the stream, as nothing else may come for hours."""
        timer = threading.Timer(OOM_LINGER, self._events.close)
        timer.daemon = True
        timer.start()
        try:
            for event in self._events.objects():
                if (event.get("Action") or event.get("status")) == "oom":
                    self._oom = True
                if event.get("Action") in ("oom", "destroy"):
                    break
        except EngineUnavailableError:
            pass  # the exit code is known; that it was out of memory is not
        finally:
            timer.cancel()

    def _settled(self) -> bool:
        return self._result is not None or self._closed

    def _settle(self, result: WaitResult) -> None:
        with self._changed:
            self._result = self._result or result
            self._changed.notify_all()
        if not isinstance(result, Exited):
            self._output.close()  # no engine ends the output of a container that never ran

    def _reconnect(self) -> None:
        """Ask the engine what became of the container, and listen again when it still runs."""
        deadline = time.monotonic() + RECONNECT_BUDGET
        pause = 0.1
        while not self._settled():
            try:
                if self._ask():
                    return
                self._events = self._open_events()
                self._output = self._open_output(history=False)
            except (EngineUnavailableError, EnginePermissionError) as error:
                if time.monotonic() > deadline:
                    self._settle(Lost(f"{self._where}: {error.message}"))
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, pause)
                pause = min(pause * 1.5, 2.0)
            else:
                with self._changed:
                    self._changed.notify_all()
                return

    def _ask(self) -> bool:
        """Settle by what the engine says now; False while the container has not ended."""
        try:
            container = self._inspect(self._id)
        except ContainerNotFoundError:
            self._settle(Lost(f"{self._where}: not there any more, and its end was not seen"))
            return True
        if container.state in _ENDED:
            self._settle(_exited(container, oom=self._oom))
            return True
        return False

    # -- the output ------------------------------------------------------------------------------------------

    def _read_output(self) -> None:
        while not self._closed:
            stream = self._output
            with contextlib.suppress(EngineUnavailableError):  # whether it ended is decided by the events
                self._drain(stream)
            stream.close()
            if self._await_end(stream):
                break
        if last := self._splitter.rest():
            self._put(last)
        with self._changed:
            self._output_ended = True
            self._changed.notify_all()

    def _drain(self, stream: Stream) -> None:
        for source, data in stream.frames():
            self._started = True  # output was seen to come before the start event
            if source == 1:
                for line in self._splitter.feed(data):
                    self._put(line)
            else:
                with self._changed:
                    self._stderr += data
                    del self._stderr[:-STDERR_TAIL]

    def _await_end(self, stream: Stream) -> bool:
        """After the output's end: True once the container's end is known, False when there is a new stream."""
        while True:
            with self._changed:
                decided = self._changed.wait_for(lambda: self._settled() or self._output is not stream, CONFIRM_EVERY)
                if decided:
                    return self._settled()
            with contextlib.suppress(EngineError):  # _reconnect has the budget for an engine that is away
                self._confirm()

    def _confirm(self) -> None:
        """Settle for an end that no event tells of.

        An engine drops events for a listener that it finds slow; and of a start that failed it tells nothing, but
        ends the output of the container, which stays as it was created.
        """
        try:
            container = self._inspect(self._id)
        except ContainerNotFoundError:
            time.sleep(OOM_LINGER)  # its die event may be on the way
            self._ask()
            return
        if container.state in _ENDED:
            time.sleep(OOM_LINGER)
            self._settle(_exited(container, oom=self._oom))
        elif container.state is State.CREATED and not self._reconnecting:
            self._settle(Rejected("the engine could not start it"))

    def _put(self, line: bytes) -> None:
        with self._changed:
            while self._queued > QUEUE_BYTES and not self._closed:
                if self._waiters and not self._readers:
                    self._queued -= len(self._lines.popleft())
                else:
                    self._changed.wait()
            self._lines.append(line)
            self._queued += len(line)
            self._changed.notify_all()


def _exited(container: Container, *, oom: bool = False) -> Exited:
    code = container.exit_code if container.exit_code is not None else -1
    return Exited(code, oom=oom or container.oom_killed)


class _Splitter:
    """Cuts a stream of bytes into lines; of a line longer than the limit only its beginning is kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._pending = False  # a line has begun, also when nothing of it is kept

    def feed(self, data: bytes) -> Iterator[bytes]:
        *complete, tail = data.split(b"\n")
        for piece in complete:
            self._keep(piece)
            yield self._take()
        if tail:
            self._keep(tail)
            self._pending = True

    def rest(self) -> bytes:
        """Return a last line without its newline, or nothing."""
        return self._take() if self._pending else b""

    def _keep(self, piece: bytes) -> None:
        self._partial += piece[: max(0, self._limit - len(self._partial))]

    def _take(self) -> bytes:
        line = bytes(self._partial)
        self._partial.clear()
        self._pending = False
        return line
