"""The light agent's ``bash`` tool: one command in a process group of its own, with a time limit and bounded output."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from dataclasses import dataclass

HEAD = 8_000  # bytes kept from the beginning of the output
TAIL = 24_000  # bytes kept from its end
LINGER = 0.2  # seconds that output is awaited after the shell has ended: a background process may hold the pipe
SECRET_PREFIXES = ("SCHOOL_", "OPENAI_", "ANTHROPIC_")


@dataclass(frozen=True)
class ShellResult:
    """How a command ended; ``exit_code`` is None when it was killed at its time limit."""

    exit_code: int | None
    output: str


class Clipped:
    """Keeps the two ends of a stream of any length."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._limits = (head, tail)
        self._cut = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        head, tail = self._limits
        room = head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= tail:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._cut += gone

    def text(self) -> str:
        """Both ends, with what is missing named between them."""
        tail = b"".join(self._tail)
        excess = max(0, len(tail) - self._limits[1])
        cut = self._cut + excess
        middle = f"\n[… {cut} bytes left out …]\n".encode() if cut else b""
        return (bytes(self._head) + middle + tail[excess:]).decode("utf-8", "replace")


def tool_environment() -> dict[str, str]:
    """The agent's environment without what is the agent's alone; programs shall not open a pager or ask."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SECRET_PREFIXES)}
    return kept | {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def run_shell(command: str, *, folder: str, timeout: float) -> ShellResult:
    """Run a command with bash, or sh where there is none; its group is killed when ``timeout`` seconds have passed.

    Raises:
        OSError: The shell can't be started.
    """
    shell = shutil.which("bash") or "/bin/sh"
    child = subprocess.Popen(
        [shell, "-c", command],
        cwd=folder,
        env=tool_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    kept = Clipped()
    finished = False
    try:
        finished = _read(child, kept, time.monotonic() + timeout)
    finally:
        if not finished:  # the time limit, or a signal to the agent
            kill_group(child.pid)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    return ShellResult(child.returncode if finished else None, kept.text())


def kill_group(pid: int) -> None:
    """SIGKILL a process group; one that is gone is fine."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _read(child: subprocess.Popen[bytes], kept: Clipped, ends_at: float) -> bool:
    """Read until the shell has ended; false at the time limit."""
    assert child.stdout is not None  # noqa: S101 - PIPE was asked for
    descriptor = child.stdout.fileno()
    os.set_blocking(descriptor, False)
    open_ = True
    last_look: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now >= ends_at and child.poll() is None:
                return False
            if child.poll() is not None and last_look is None:
                last_look = now + LINGER
            if last_look is not None and (not open_ or now >= last_look):
                return True
            if not open_:
                time.sleep(0.01)
                continue
            if not selector.select(0.05):
                continue
            data = os.read(descriptor, 65536)
            if data:
                kept.add(data)
            else:
                open_ = False
                selector.unregister(descriptor)
