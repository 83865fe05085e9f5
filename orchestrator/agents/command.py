"""Agent ``command``: any command line tool, told by its environment where the model is and what the task is."""

from __future__ import annotations

import os
import signal

from orchestrator.agents.brief import Brief, BriefError, header, read_brief, task_message
from orchestrator.layout import PLACEHOLDER_KEY, RELAY_HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import IO

    from orchestrator.agents.events import Emitter
    from orchestrator.agents.places import Places

TAIL = 64 * 1024  # characters of stdout that become the final output
MAX_LINE = 16_000
MAX_VARIABLE = 120_000  # bytes; Linux refuses to start a program with a longer one than 128 KiB


def environment(places: Places, brief: Brief) -> dict[str, str]:
    """What the command sees: its own environment plus where the model and the task are. No real key exists here."""
    origin = f"http://{RELAY_HOST}:{places.relay_port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCHOOL_")}
    return kept | {
        "OPENAI_BASE_URL": f"{origin}/v1",
        "OPENAI_API_BASE": f"{origin}/v1",
        "OPENAI_API_KEY": PLACEHOLDER_KEY,
        "OPENAI_MODEL": brief.model,
        "ANTHROPIC_BASE_URL": origin,
        "ANTHROPIC_API_KEY": PLACEHOLDER_KEY,
        "ANTHROPIC_AUTH_TOKEN": PLACEHOLDER_KEY,
        "ANTHROPIC_MODEL": brief.model,
        "SCHOOL_BRIEF": places.brief,
        "SCHOOL_BEAD": brief.bead,
        "SCHOOL_TASK": _fitting(f"{header(brief)}\n\n{task_message(brief)}"),
    }


def run(places: Places, emit: Emitter) -> int:
    """Run the brief's command in the workspace; its exit code decides between completed and failed."""
    try:
        brief = read_brief(places)
    except BriefError as error:
        emit.finish("failed", str(error))
        return 0
    if not brief.command:
        emit.finish("failed", "agent command needs a command in the brief")
        return 0
    emit.started("command", "1", brief.model)
    import subprocess
    import threading

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the command, in the same group, decides how to end
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", brief.command],
            cwd=places.workspace,
            env=environment(places, brief),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_restore_signals,  # noqa: PLW1509 - no thread exists yet
        )
    except (OSError, ValueError) as error:  # too long, or with a NUL
        emit.finish("failed", f"the command can't be started: {error}")
        return 0
    tail = Tail()
    lock = threading.Lock()
    assert child.stdout is not None  # noqa: S101
    assert child.stderr is not None  # noqa: S101
    readers = [
        threading.Thread(target=_copy, args=("stdout", child.stdout, emit, lock, tail), daemon=True),
        threading.Thread(target=_copy, args=("stderr", child.stderr, emit, lock, None), daemon=True),
    ]
    for reader in readers:
        reader.start()
    code = child.wait()
    for reader in readers:
        reader.join(timeout=1.0)  # a background process may hold the pipe open
    with lock:
        if code == 0:
            emit.finish("completed", "", tail.text(), command_exit_code=0)
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            number = code if code > 0 else 128 - code
            emit.finish("failed", f"the command {how}", tail.text(), command_exit_code=number)
    return 0


class Tail:
    """The last characters of a stream."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0

    def add(self, line: str) -> None:
        """Append a line and forget what is too old."""
        self._lines.append(line)
        self._size += len(line)
        while self._size > TAIL and len(self._lines) > 1:
            self._size -= len(self._lines.pop(0))

    def text(self) -> str:
        """What is kept."""
        return "".join(self._lines)[-TAIL:]


def _fitting(task: str) -> str:
    data = task.replace("\0", "").encode("utf-8", "replace")
    if len(data) <= MAX_VARIABLE:
        return data.decode()
    return data[:MAX_VARIABLE].decode("utf-8", "ignore") + "\n[cut: the whole task is in the file $SCHOOL_BRIEF]"


def _copy(name: str, stream: IO[bytes], emit: Emitter, lock: threading.Lock, tail: Tail | None) -> None:
    while line := stream.readline(MAX_LINE):
        text = line.decode("utf-8", "replace")
        with lock:
            if tail is not None:
                tail.add(text)
            if text.strip() and not emit.finished:
                emit.output(name, text.rstrip("\r\n"))


def _restore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
