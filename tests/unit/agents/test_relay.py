"""The relay from TCP to the gate's socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import closing

import pytest

from orchestrator.agents import relay


class Echo:
    """Echoes until its client has finished sending, then says how much it was."""

    def __init__(self, path):
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        self._path = path
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        total = 0
        with client, contextlib.suppress(OSError):  # a client that went away in between
            while data := client.recv(65536):
                total += len(data)
                client.sendall(data)
            client.sendall(f"|{total}".encode())

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        self._path.unlink()


@pytest.fixture
def running(slot):
    """A relay in a thread; gives a function that connects."""
    listener = relay.listen(0)
    one = relay.Relay(listener, str(slot.gate))
    stop = threading.Event()

    def work():
        while not stop.is_set():
            one.step(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    yield lambda: socket.create_connection(listener.getsockname(), timeout=20)
    stop.set()
    thread.join()
    one.close()
    listener.close()


def exchange(connect, payload):
    with connect() as client:
        reader = []

        def read():
            while data := client.recv(65536):
                reader.append(data)

        thread = threading.Thread(target=read)
        thread.start()
        client.sendall(payload)
        client.shutdown(socket.SHUT_WR)
        thread.join(timeout=20)
        return b"".join(reader)


def test_a_half_closed_connection_still_gets_its_answer(slot, running):
    with closing(Echo(slot.gate)):
        assert exchange(running, b"hello") == b"hello|5"


def test_more_than_the_buffers_hold_passes_whole(slot, running):
    payload = bytes(range(256)) * 20_000
    with closing(Echo(slot.gate)):
        assert exchange(running, payload) == payload + f"|{len(payload)}".encode()


def test_many_connections_at_once(slot, running):
    answers = {}

    def one(number):
        answers[number] = exchange(running, f"n{number}".encode())

    with closing(Echo(slot.gate)):
        threads = [threading.Thread(target=one, args=(number,)) for number in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {number: f"n{number}|{len(str(number)) + 1}".encode() for number in range(60)}


def test_a_restarted_gate_is_found_again(slot, running):
    with closing(Echo(slot.gate)):
        assert exchange(running, b"a") == b"a|1"
    with running() as waiting:  # made while no gate is there
        waiting.sendall(b"patience")
        waiting.shutdown(socket.SHUT_WR)
        with closing(Echo(slot.gate)):
            data = b""
            while piece := waiting.recv(100):
                data += piece
            assert data == b"patience|8"


def test_without_a_gate_the_client_is_let_go(running, monkeypatch):
    monkeypatch.setattr(relay, "GATE_PATIENCE", 0.2)
    with running() as client:
        client.sendall(b"x")
        try:
            assert client.recv(10) == b""
        except ConnectionResetError:
            return


def test_a_client_that_vanishes_harms_nobody(slot, running):
    with closing(Echo(slot.gate)):
        for _ in range(20):
            client = running()
            client.sendall(b"x" * 100_000)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        assert exchange(running, b"ok") == b"ok|2"
