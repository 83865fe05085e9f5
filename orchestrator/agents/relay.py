"""127.0.0.1:20128 to the gate's Unix socket, for agents that only speak TCP. One process, one selector.

The listener is made by PID 1 before the agent starts. Each connection opens the socket anew, so a restarted gate is
found again; while it is away, new connections wait for it for some seconds instead of failing.
"""

from __future__ import annotations

import selectors
import socket
import time

from orchestrator.layout import RELAY_HOST

BUFFER = 256 * 1024  # bytes held for one direction before its sender is no longer read
CHUNK = 65536
GATE_PATIENCE = 15.0  # seconds that a new connection waits for the gate
RETRY = 0.1


def listen(port: int) -> socket.socket:
    """Open the listener on the loopback device; port 0 lets the kernel choose.

    Raises:
        OSError: The port is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((RELAY_HOST, port))
    listener.listen(128)
    listener.setblocking(False)
    return listener


def serve(listener: socket.socket, gate: str) -> int:
    """Relay until killed."""
    relay = Relay(listener, gate)
    while True:
        relay.step()


class End:
    """One socket of a pair. What its peer has read and it has not sent yet waits in ``pending``."""

    __slots__ = ("closed", "ended", "peer", "pending", "shut", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.peer: End = self
        self.pending = bytearray()
        self.ended = False  # nothing more will be read from it
        self.shut = False  # its sending side is shut down
        self.closed = False


class Relay:
    """All connections of one relay."""

    def __init__(self, listener: socket.socket, gate: str) -> None:
        self._listener = listener
        self._gate = gate
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._waiting: list[tuple[socket.socket, float]] = []

    def step(self, timeout: float | None = None) -> None:
        """Wait for something to do, and do it."""
        for key, mask in self._selector.select(RETRY if self._waiting else timeout):
            if key.data is None:
                self._accept()
                continue
            end: End = key.data
            if mask & selectors.EVENT_WRITE and not end.closed:
                self._send(end)
            if mask & selectors.EVENT_READ and not end.closed:
                self._receive(end)
        if self._waiting:
            self._connect_waiting()

    def close(self) -> None:
        """Close every connection; the listener stays its owner's."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._close(key.data)
        for sock, _ in self._waiting:
            sock.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the client was quicker, or too many descriptors are open: the backlog keeps the rest
            return
        self._waiting.append((sock, time.monotonic() + GATE_PATIENCE))

    def _connect_waiting(self) -> None:
        still: list[tuple[socket.socket, float]] = []
        for client, until in self._waiting:
            gate = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            gate.setblocking(False)
            try:
                gate.connect(self._gate)
            except OSError:  # missing, refused, or its backlog is full
                gate.close()
                if time.monotonic() < until:
                    still.append((client, until))
                else:
                    client.close()
                continue
            first, second = End(client), End(gate)
            first.peer, second.peer = second, first
            for end in (first, second):
                self._selector.register(end.sock, selectors.EVENT_READ, end)
        self._waiting = still

    def _receive(self, end: End) -> None:
        try:
            data = end.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._close(end)
            return
        if data:
            end.peer.pending += data
        else:
            end.ended = True
        self._send(end.peer)

    def _send(self, end: End) -> None:
        try:
            while end.pending:
                del end.pending[: end.sock.send(end.pending[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.peer.ended and not end.pending and not end.shut:
            end.shut = True
            try:
                end.sock.shutdown(socket.SHUT_WR)  # the other direction may go on
            except OSError:
                self._close(end)
                return
        if end.shut and end.peer.shut:
            self._close(end)
            return
        self._watch(end)
        self._watch(end.peer)

    def _watch(self, end: End) -> None:
        mask = selectors.EVENT_WRITE if end.pending else 0
        if not end.ended and len(end.peer.pending) < BUFFER:
            mask |= selectors.EVENT_READ
        known = end.sock in self._selector.get_map()
        if mask and known:
            self._selector.modify(end.sock, mask, end)
        elif mask:
            self._selector.register(end.sock, mask, end)
        elif known:
            self._selector.unregister(end.sock)

    def _close(self, end: End) -> None:
        for one in (end, end.peer):
            if not one.closed:
                one.closed = True
                if one.sock in self._selector.get_map():
                    self._selector.unregister(one.sock)
                one.sock.close()
