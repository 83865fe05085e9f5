"""When an engine is installed or started, and what is done about the leftovers of one that died."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.engine import provision
from orchestrator.engine.locate import Answer, Candidate, Located, Search
from orchestrator.engine.provision import Host, Step, decide, ensure_engine, remove_stale_pid_files, start_detached
from orchestrator.errors import CancelledError, EngineUnavailableError

SOCKET = Candidate("unix:///var/run/docker.sock", "the usual socket")
MISSING = Search(((SOCKET, Answer.NO_SOCKET),))
STOPPED = Search(((SOCKET, Answer.SILENT),))
BARE = Host(root=True, debian_like=True, installed=False, systemd=False)
WITH_ENGINE = Host(root=True, debian_like=True, installed=True, systemd=False)


@pytest.mark.parametrize(
    ("result", "host", "step"),
    [
        (MISSING, BARE, Step.INSTALL),
        (MISSING, WITH_ENGINE, Step.START),
        (STOPPED, WITH_ENGINE, Step.START),
        (MISSING, Host(root=False, debian_like=True, installed=False, systemd=True), Step.TELL),
        (MISSING, Host(root=True, debian_like=False, installed=True, systemd=True), Step.TELL),
        (Search(((SOCKET, Answer.PERMISSION),)), BARE, Step.TELL),
        (Search(((SOCKET, Answer.NO_SOCKET),), named=True), WITH_ENGINE, Step.TELL),
    ],
)
def test_decision(result, host, step):
    assert decide(result, host) is step


@pytest.fixture
def no_engine(monkeypatch, tmp_path):
    """A bare host whose engine is installed and started only in name; returns what was done."""
    done: list[str] = []
    monkeypatch.setattr(provision, "_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(provision, "search", lambda: MISSING)
    monkeypatch.setattr(provision, "this_host", lambda: BARE)
    monkeypatch.setattr(provision, "install", lambda echo: done.append("install"))

    def start(folder, echo, *, systemd):
        done.append(f"start {folder.relative_to(tmp_path)}")
        return Located(SOCKET.endpoint, "test")

    monkeypatch.setattr(provision, "start", start)
    return done


def test_without_a_terminal_it_says_what_it_does_and_does_it(no_engine, tmp_path):
    said: list[str] = []
    ensure_engine(tmp_path, said.append, None)
    assert no_engine == ["install", "start school/engine"]
    assert "Install docker.io and iptables with apt, and start the engine as a detached process" in said[0]


def test_on_a_terminal_a_no_changes_nothing(no_engine, tmp_path):
    with pytest.raises(CancelledError) as caught:
        ensure_engine(tmp_path, lambda line: None, lambda question: False)
    assert no_engine == []
    assert "apt-get install docker.io" in caught.value.next_step


def test_an_ordinary_user_is_told_what_to_type(no_engine, tmp_path, monkeypatch):
    monkeypatch.setattr(provision, "this_host", lambda: Host(False, True, False, True))
    with pytest.raises(EngineUnavailableError):
        ensure_engine(tmp_path, lambda line: None, None)
    assert no_engine == []


def test_an_engine_that_came_up_while_waiting_for_the_lock_is_used(no_engine, tmp_path, monkeypatch):
    answers = iter([MISSING, Search(found=Located(SOCKET.endpoint, "other"))])
    monkeypatch.setattr(provision, "search", lambda: next(answers))
    assert ensure_engine(tmp_path, lambda line: None, None).source == "other"
    assert no_engine == []


def pid_files(tmp_path: Path, pid: str, program: str | None) -> tuple[Path, Path]:
    run, proc = tmp_path / "run", tmp_path / "proc"
    run.mkdir()
    (run / "docker.pid").write_text(pid)
    if program:
        (proc / pid).mkdir(parents=True)
        (proc / pid / "comm").write_text(f"{program}\n")
    return run, proc


@pytest.mark.parametrize(("pid", "program"), [("77", None), ("77", "postgres"), ("rubbish", None), ("", None)])
def test_a_pid_file_of_a_dead_engine_is_removed(tmp_path, pid, program):
    run, proc = pid_files(tmp_path, pid, program)
    said: list[str] = []
    remove_stale_pid_files(run, said.append, proc)
    assert not (run / "docker.pid").exists()
    assert "stale" in said[0]


def test_a_pid_file_of_a_living_engine_stays(tmp_path):
    run, proc = pid_files(tmp_path, "77", "dockerd")
    remove_stale_pid_files(run, lambda line: None, proc)
    assert (run / "docker.pid").exists()


def test_a_detached_process_has_a_session_of_its_own_a_log_and_a_short_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNNER_TRACKING_ID", "mark")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    program = (
        "import os, sys; print(os.getsid(0) == os.getpid(), sorted(os.environ), os.getcwd(), sys.stdin.read() == '')"
    )
    process = start_detached([sys.executable, "-c", program], tmp_path / "engine")
    assert process.wait(timeout=60) == 0
    name = Path(sys.executable).name
    text = (tmp_path / "engine" / f"{name}.log").read_text()
    assert text.startswith("True ")
    assert text.endswith("/ True\n")
    assert "RUNNER_TRACKING_ID" not in text
    assert "HTTPS_PROXY" in text
    assert int((tmp_path / "engine" / f"{name}.pid").read_text()) == process.pid


def test_a_detached_process_keeps_no_pipe_of_its_starter_open(tmp_path):
    """`make up | tee log` must end when make does."""
    script = (
        "import sys; from pathlib import Path; from orchestrator.engine.provision import start_detached; "
        f"p = start_detached(['sleep', '300'], Path({str(tmp_path)!r})); print(p.pid); sys.stdout.flush(); "
        "import os; os._exit(0)"
    )
    reader, writer = os.pipe()
    try:
        started = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, pass_fds=(writer,)
        )
        os.close(writer)
        writer = -1
        assert os.read(reader, 1) == b""  # end of file: nobody holds the other end
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    pid = int(started.stdout)
    os.kill(pid, 0)
    os.kill(pid, 9)


def test_an_engine_that_dies_at_its_start_is_reported_with_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(provision, "probe", lambda candidate: Answer.SILENT)
    process = start_detached(["sh", "-c", "echo no cgroups here; exit 3"], tmp_path)
    process.wait(timeout=60)
    with pytest.raises(EngineUnavailableError, match="no cgroups here"):
        provision._wait_until_it_answers(lambda line: None, process, tmp_path / "sh.log")


def test_an_engine_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(provision, "START_SECONDS", 0.3)
    monkeypatch.setattr(provision, "probe", lambda candidate: Answer.SILENT)
    with pytest.raises(EngineUnavailableError, match="did not answer"):
        provision._wait_until_it_answers(lambda line: None, None, None)


def test_the_module_runs_with_the_standard_library_alone():
    """It brings the engine up before anything else can be relied on."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import orchestrator.engine.provision; print('ok')"
    root = Path(provision.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(root)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "ok\n"
