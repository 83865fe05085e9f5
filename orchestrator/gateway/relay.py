"""A relay for an OmniRoute on the host's loopback, which the gate's container can't reach.

A small detached process per home: it listens on a Unix socket in the gate's folder and passes bytes on to the address
in ``<home>/school/gateway-relay.json``. That file is the host's alone: were it in the gate's folder, whoever took the
gate over could reach every port of the host's loopback. The process holds a lock while it lives, follows a changed
address, and ends when the file is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.errors import GatewayUnavailableError
from orchestrator.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

SOCKET = "omniroute.sock"
CHUNK = 1 << 16
LOOK_SECONDS = 1.0  # how often the relay looks whether it is still wanted
START_SECONDS = 15.0
# marks by which CI runners and shells end what a job left behind; the relay is meant to stay
_DROPPED = ("RUNNER_TRACKING_ID",)


def socket_path(home: Home) -> Path:
    """Return the relay's socket on the host."""
    return home.gate / "upstream" / SOCKET


def _target_file(home: Home) -> Path:
    return home.school / "gateway-relay.json"


def _lock_file(home: Home) -> Path:
    return home.leases / "gateway-relay"


def ensure_relay(home: Home, url: str) -> None:
    """Make sure that a relay to ``url`` runs; a running one follows a changed address by itself.

    Raises:
        GatewayUnavailableError: it did not start.
    """
    parts = urlsplit(url)
    target = {"host": parts.hostname, "port": parts.port or (443 if parts.scheme == "https" else 80)}
    path = _target_file(home)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    temporary.write_text(json.dumps(target), encoding="utf-8")
    temporary.replace(path)
    if runs(home):
        return
    log = home.logs / "gateway-relay.log"
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    # the package may not be installed: the child has to find it where this process did
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    folders = [str(folder) for folder in (home.root, home.bookbags, home.signals, home.locks)]
    with log.open("ab") as output:
        subprocess.run(  # returns at once: the process forks and its parent ends, so nobody has to wait for it
            [sys.executable, "-m", "orchestrator.gateway.relay", *folders],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment,
            cwd="/",
            check=True,
        )
    ends = time.monotonic() + START_SECONDS
    while not _answers(home):
        if time.monotonic() > ends:
            raise GatewayUnavailableError(
                f"The relay to {url} did not start within {START_SECONDS:.0f} s.", next_step=f"Its output is in {log}."
            )
        time.sleep(0.05)


def drop_relay(home: Home) -> None:
    """Let the relay end, if there is one."""
    _target_file(home).unlink(missing_ok=True)


def runs(home: Home) -> bool:
    """Return whether a relay of this home lives: it does as long as it holds its lock."""
    try:
        descriptor = os.open(_lock_file(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _short(path: Path, use: Callable[[str], None]) -> None:
    """Use a socket's path through its folder's descriptor: the kernel's limit is 108 characters."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _answers(home: Home) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            _short(socket_path(home), client.connect)
        except OSError:
            return False
    return True


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class _Relay:
    def __init__(self, home: Home) -> None:
        self._home = home

    async def serve(self) -> None:
        path = socket_path(self._home)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._home.hand_over(path.parent)
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _short(path, listening.bind)
        path.chmod(0o600)
        self._home.hand_over(path)
        server = await asyncio.start_unix_server(self._connected, sock=listening)
        async with server:
            while _target_file(self._home).exists():  # noqa: ASYNC110 - another process removes it
                await asyncio.sleep(LOOK_SECONDS)
        path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = json.loads(_target_file(self._home).read_text(encoding="utf-8"))
            far_reader, far_writer = await asyncio.open_connection(target["host"], target["port"])
        except (OSError, ValueError, KeyError):
            writer.close()
            return
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            for end in (writer, far_writer):
                end.close()


def main(folders: list[str]) -> int:
    """Run the relay of the home with these folders in the background, unless one runs already."""
    if os.fork():
        return 0
    home = Home(*(Path(folder) for folder in folders))
    descriptor = os.open(_lock_file(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    asyncio.run(_Relay(home).serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
