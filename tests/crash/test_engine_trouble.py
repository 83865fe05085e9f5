"""The engine stumbles while a bead runs: a proxy of ours stands between, the engine itself is never touched.

Whatever it does, the bead ends with a typed outcome, and what can't be removed at once is removed later.
"""

import contextlib
import json
import socket
import threading
import time

import pytest

pytestmark = pytest.mark.standing


class Proxy:
    """Passes requests on to an engine's socket, one connection each; misbehaves as told."""

    def __init__(self, path, target):
        self.path, self._target = path, target
        self.faults = []  # (method, part of the path, how often, what): what is (status, message) or seconds
        self.hits = []
        self._open, self._listener = [], None
        self._lock = threading.Lock()

    def up(self):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def down(self):
        listener, self._listener = self._listener, None
        for each in (listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open = []
        self.path.unlink()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        engine = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            engine.connect(self._target)
            self._open += [client, engine]
            threading.Thread(target=self._pump, args=(engine, client), daemon=True).start()
            while data := client.recv(65536):
                answer = self._fault(data)
                if isinstance(answer, float):
                    time.sleep(answer)
                elif answer is not None:
                    client.sendall(answer)
                    break
                engine.sendall(data)
        for each in (engine, client):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_WR)

    @staticmethod
    def _pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _fault(self, data):
        line = data.split(b"\r\n", 1)[0].decode("latin-1")
        with self._lock:
            for fault in self.faults:
                method, part, left, what = fault
                if left > 0 and line.startswith(f"{method} ") and part in line:
                    fault[2] -= 1
                    self.hits.append(line)
                    if isinstance(what, float):
                        return what
                    status, message = what
                    body = json.dumps({"message": message}).encode()
                    head = f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    return head.encode() + body
        return None


@pytest.fixture
def proxy(engine, tmp_path):
    made = Proxy(tmp_path / "p.sock", engine.info().endpoint.removeprefix("unix://"))
    made.up()
    yield made
    if made.path.exists():
        made.down()


def drive(crashes, proxy, bead, **more):
    return crashes.start(bead, DOCKER_HOST=f"unix://{proxy.path}", **more)


@pytest.mark.parametrize(
    ("method", "part", "times", "what"),
    [
        ("POST", "/containers/create", 2, (500, "the engine stumbles")),
        ("POST", "/start", 1, (500, "the engine stumbles")),
        ("DELETE", "/containers/", 3, (500, "driver failed to remove root filesystem")),
        ("DELETE", "/containers/", 3, (409, "removal of container x is already in progress")),
        ("GET", "/json", 4, 1.5),
    ],
)
def test_a_passing_fault_is_waited_out(crashes, proxy, method, part, times, what):
    bead = crashes.bead()
    proxy.faults.append([method, part, times, what])
    assert drive(crashes, proxy, bead).wait(timeout=240) == 0, crashes.why(bead)
    assert len(proxy.hits) == times
    assert crashes.row(bead)["outcome"] == "accepted"
    assert crashes.left(bead) == []


def test_a_name_that_is_still_going_away_is_somebodys_and_ends_typed(crashes, proxy):
    bead = crashes.bead()
    proxy.faults.append(
        ["POST", "/containers/create", 99, (409, 'Conflict. The container name "/x" is already in use')]
    )
    assert drive(crashes, proxy, bead).wait(timeout=240) == 7
    assert crashes.row(bead)["outcome"] == "sandbox_unavailable"
    assert crashes.left(bead) == []


@pytest.mark.parametrize("seconds", [1, 8])
def test_an_engine_that_is_away_for_a_while_is_met_again(crashes, proxy, seconds):
    """Another socket, and the student went on; after the longer absence it has ended meanwhile, and is removed."""
    bead = crashes.bead()
    principal = drive(crashes, proxy, bead, task="[rehearse: slow 1.5] [rehearse: write made.txt]")
    crashes.running(bead)
    proxy.down()
    time.sleep(seconds)
    proxy.up()
    assert principal.wait(timeout=240) == 0, crashes.why(bead)
    assert crashes.row(bead)["outcome"] == "accepted"
    assert crashes.left(bead) == []


def test_a_removal_that_fails_is_finished_by_the_janitor(crashes, proxy):
    """The engine goes and does not come back while the principal is there."""
    bead = crashes.bead()
    with crashes.nobody_recovers():
        proxy.faults.append(["DELETE", "/containers/", 10_000, (500, "device or resource busy")])
        principal = drive(crashes, proxy, bead, agent="command", command="sleep 300")
        crashes.running(bead)
        principal.terminate()
        principal.wait(timeout=120)
        row = crashes.row(bead)
        assert (row["outcome"], row["cleanup"]) == ("cancelled", "failed")
        assert (crashes.home.leaves / bead).exists()  # a tree that a container may write is neither read nor removed
    crashes.janitor()
    assert crashes.row(bead)["outcome"] == "cancelled"
    assert crashes.left(bead) == []


def test_a_container_that_somebody_removed_leaves_a_lost_bead_and_its_work(crashes, engine):
    bead = crashes.bead()
    principal = crashes.start(bead, task="[rehearse: run echo begun > made.txt && sleep 300]")
    container = crashes.running(bead)
    crashes.until(lambda: list((crashes.home.leaves / bead).glob("study-*/made.txt")))
    engine.remove(container.id)
    principal.wait(timeout=120)
    assert crashes.row(bead)["outcome"] in {"lost", "task_failed"}
    assert crashes.git("show", f"{crashes.ref(bead)}:made.txt") == "begun"
    assert crashes.left(bead) == []
