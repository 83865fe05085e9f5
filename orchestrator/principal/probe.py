"""Does the engine see the same folders as this program, and does a socket in them work from inside a container?

A snap's Docker sees another home folder, a remote engine another machine, a job in a container another root: all of
them fail later and darkly. So it is tried with one container before anything depends on it.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import threading
from typing import TYPE_CHECKING

from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, ContainerSpec, Exited, Kind, Mount
from orchestrator.errors import EngineError, SandboxError

if TYPE_CHECKING:
    from orchestrator.engine.base import Engine
    from orchestrator.home import Home

PROGRAM = (
    "import socket; print(open('/probe/word').read(), flush=True)\n"
    "s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect('/probe/s'); print(s.recv(64).decode(), flush=True)"
)
HELP = (
    "Use an engine on this machine that sees this folder (a snap's Docker sees another home, a remote engine another "
    "machine), or set SCHOOL_HOME to a folder that both see."
)


def probe_folders(engine: Engine, home: Home, image: str, userns_mode: str = "") -> None:
    """Try a mounted file and a mounted socket in one container.

    Raises:
        SandboxError: the engine sees another folder, or sockets don't cross.
    """
    folder = home.school / f"p-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    word, answer = secrets.token_hex(8), secrets.token_hex(8)
    (folder / "word").write_text(word, encoding="ascii")
    (folder / "word").chmod(0o644)
    try:
        with _Listener(folder, answer, home):
            seen, ended = _run(engine, home, image, str(folder), userns_mode)
    finally:
        shutil.rmtree(folder)
    if word not in seen:
        raise SandboxError(f"The engine does not see the folder {home.root} of this machine.", next_step=HELP)
    if answer not in seen:
        raise SandboxError(f"A socket below {home.root} can't be reached from a container ({ended}).", next_step=HELP)


def _run(engine: Engine, home: Home, image: str, folder: str, userns_mode: str) -> tuple[list[str], str]:
    spec = ContainerSpec(
        image=image,
        name=f"school-{home.id}-probe-{secrets.token_hex(4)}",
        entrypoint=("python3", "-I", "-S", "-c", PROGRAM),
        labels={LABEL_HOME: home.id, LABEL_KIND: Kind.PROBE},
        mounts=(Mount(folder, "/probe", read_only=True),),
        user=f"{home.uid}:{home.gid}",
        userns_mode=userns_mode,
        pids_limit=32,
        memory=128 << 20,
    )
    try:
        container = engine.create(spec)
    except EngineError as error:
        raise SandboxError(f"The engine can't mount {folder}: {error.message}", next_step=HELP) from error
    watch = engine.watch(container)
    try:
        engine.start(container)
        result = watch.wait(timeout=30)
        lines = [line.decode("utf-8", "replace") for line in watch.lines()] if isinstance(result, Exited) else []
        ended = watch.stderr_tail().decode("utf-8", "replace").strip().rpartition("\n")[2] or str(result)
    finally:
        engine.remove(container)
        watch.close()
    return lines, ended


class _Listener:
    """A Unix socket in a folder that answers one connection with a word."""

    def __init__(self, folder: object, answer: str, home: Home) -> None:
        self._path = f"{folder}/s"
        self._answer = answer
        self._home = home
        self._socket = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> None:
        from pathlib import Path  # noqa: PLC0415

        self._socket.bind(self._path)
        self._home.hand_over(Path(self._path))
        self._socket.listen(1)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        # shutdown wakes the thread that waits in accept; closing alone does not
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=5)

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        with connection:
            connection.sendall(self._answer.encode("ascii"))
