"""Which engine is used, and what the person is told when none is."""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.engine import locate as module
from orchestrator.engine.locate import Answer, Candidate, Search, candidates, locate, probe, search
from orchestrator.errors import EnginePermissionError, EngineUnavailableError


@contextmanager
def listening(path: Path, reply: bytes | None):
    """A socket that answers one request with ``reply``, or takes the connection and hangs up."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                if reply:
                    connection.recv(4096)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


PONG = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK"


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:  # tmp_path may be longer than a socket's path may be
        yield Path(name)


def store_context(config: Path, name: str, host: str, *, current: bool = True) -> None:
    meta = config / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if current:
        (config / "config.json").write_text(json.dumps({"currentContext": name}))


def test_docker_host_is_the_only_candidate(folder):
    found = candidates({"DOCKER_HOST": "unix:///x.sock", "HOME": str(folder)})
    assert [(one.endpoint, one.named) for one in found] == [("unix:///x.sock", True)]


@pytest.mark.parametrize(("given", "meant"), [("/x.sock", "unix:///x.sock"), ("build:2375", "tcp://build:2375")])
def test_addresses_without_a_scheme_are_understood_as_docker_does(given, meant):
    assert candidates({"DOCKER_HOST": given})[0].endpoint == meant


def test_the_current_context_comes_before_the_usual_sockets(folder):
    store_context(folder, "remote", "ssh://me@build")
    found = candidates({"DOCKER_CONFIG": str(folder), "HOME": str(folder)})
    assert [(one.endpoint, one.source) for one in found] == [("ssh://me@build", "docker context remote")]


def test_docker_context_variable_beats_the_configured_one(folder):
    store_context(folder, "configured", "unix:///a.sock")
    store_context(folder, "wanted", "unix:///b.sock", current=False)
    environment = {"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": "wanted"}
    assert candidates(environment)[0].endpoint == "unix:///b.sock"


def test_a_context_that_does_not_exist_is_an_error_and_not_skipped(folder):
    with pytest.raises(EngineUnavailableError, match="'gone'"):
        candidates({"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": "gone"})


def test_the_default_context_means_the_usual_sockets(folder):
    (folder / "config.json").write_text('{"currentContext": "default"}')
    found = candidates({"DOCKER_CONFIG": str(folder), "HOME": str(folder), "XDG_RUNTIME_DIR": "/run/user/7"})
    assert found[0].endpoint == "unix:///var/run/docker.sock"
    assert "unix:///run/user/7/podman/podman.sock" in [one.endpoint for one in found]
    assert not any(one.named for one in found)


def test_an_unreadable_docker_config_is_passed_over(folder):
    (folder / "config.json").write_text("{ not json")
    assert candidates({"DOCKER_CONFIG": str(folder)})[0].endpoint == "unix:///var/run/docker.sock"


def test_probe_tells_a_living_engine(folder):
    with listening(folder / "e.sock", PONG) as endpoint:
        assert probe(Candidate(endpoint, "test")) is Answer.ALIVE


def test_probe_tells_a_socket_that_says_nothing(folder):
    with listening(folder / "e.sock", None) as endpoint:
        assert probe(Candidate(endpoint, "test")) is Answer.SILENT


def test_probe_tells_a_socket_left_by_a_dead_engine(folder):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "e.sock"))
    assert probe(Candidate(f"unix://{folder}/e.sock", "test")) is Answer.SILENT


def test_probe_tells_that_there_is_no_socket(folder):
    assert probe(Candidate(f"unix://{folder}/none.sock", "test")) is Answer.NO_SOCKET


def test_probe_tells_another_server_from_an_engine(folder):
    reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with listening(folder / "e.sock", reply) as endpoint:
        assert probe(Candidate(endpoint, "test")) is Answer.SILENT


def test_probe_tells_a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert probe(Candidate(f"tcp://127.0.0.1:{port}", "test")) is Answer.UNREACHABLE


def test_probe_tells_a_socket_that_may_not_be_opened(folder, monkeypatch):
    def refuse(self, address):
        raise PermissionError(errno.EACCES, "Permission denied")  # as the kernel does for anybody but root

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert probe(Candidate(f"unix://{folder}/e.sock", "test")) is Answer.PERMISSION


def test_locate_returns_the_engine_and_says_where_it_comes_from(folder):
    with listening(folder / "e.sock", PONG) as endpoint:
        found = locate({"DOCKER_HOST": endpoint})
    assert (found.endpoint, found.source) == (endpoint, "DOCKER_HOST")


def test_a_dead_docker_host_is_an_error_although_another_engine_runs(folder, monkeypatch):
    monkeypatch.setattr(module, "probe", lambda one: Answer.NO_SOCKET if "dead" in one.endpoint else Answer.ALIVE)
    with pytest.raises(EngineUnavailableError, match="DOCKER_HOST names the engine unix:///dead"):
        locate({"DOCKER_HOST": "unix:///dead.sock"})


def test_the_first_socket_that_answers_is_used(monkeypatch):
    monkeypatch.setattr(module, "probe", lambda one: Answer.ALIVE if "podman" in one.endpoint else Answer.NO_SOCKET)
    result = search({"HOME": "/h", "XDG_RUNTIME_DIR": "/r"})
    assert result.found
    assert result.found.endpoint == "unix:///r/podman/podman.sock"


def outcome(*pairs: tuple[str, Answer]) -> Search:
    return Search(tuple((Candidate(endpoint, "the usual socket"), answer) for endpoint, answer in pairs))


def test_someone_outside_the_docker_group_is_told_the_command():
    error = outcome(("unix:///var/run/docker.sock", Answer.PERMISSION), ("unix:///b", Answer.NO_SOCKET)).error()
    assert isinstance(error, EnginePermissionError)
    assert "usermod -aG docker" in error.next_step


def test_a_stopped_engine_is_told_from_a_missing_one():
    stopped = outcome(("unix:///var/run/docker.sock", Answer.SILENT)).error()
    missing = outcome(("unix:///var/run/docker.sock", Answer.NO_SOCKET)).error()
    assert "systemctl start docker" in stopped.next_step
    assert "apt-get install docker.io" in missing.next_step
