"""Getting a container engine on a host that has none running. Standard library only.

Only on Debian and Ubuntu, and only as root, does this program install and start one: the distribution's own
package, started by systemd, or as a detached process where there is no systemd. Everybody else is told what to type.
An engine that was named by the person (DOCKER_HOST, a docker context) is never replaced by another.

``python -m orchestrator.engine.provision [--home FOLDER]`` does it from a Makefile and prints the address.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from orchestrator.engine.locate import Answer, Candidate, Located, Search, probe, search
from orchestrator.errors import CancelledError, EngineUnavailableError, SchoolError

SOCKET = "unix:///var/run/docker.sock"
START_SECONDS = 90.0
PACKAGES = ("docker.io", "iptables", "ca-certificates")
_LOCK = "/run/lock/agent-school-engine.lock"
_RUN = Path("/var/run")

Echo = Callable[[str], None]
Confirm = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Host:
    """What matters of this host for the decision."""

    root: bool
    debian_like: bool
    installed: bool  # there is a dockerd
    systemd: bool  # PID 1 is systemd and takes orders


class Step(Enum):
    """What is to be done about an engine that does not answer."""

    TELL = auto()  # only the person can mend it
    START = auto()
    INSTALL = auto()  # and start


def this_host() -> Host:
    """Look at this host."""
    return Host(
        root=os.geteuid() == 0,
        debian_like=_is_debian_like(Path("/etc/os-release")),
        installed=shutil.which("dockerd") is not None,
        systemd=Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None,
    )


def decide(result: Search, host: Host) -> Step:
    """Return what to do about a search that found no engine."""
    if result.named or not (host.root and host.debian_like):
        return Step.TELL
    if any(answer is Answer.PERMISSION for _, answer in result.tried):
        return Step.TELL  # root was refused: a security module or a container's boundary, not a missing engine
    return Step.START if host.installed else Step.INSTALL


def ensure_engine(home_root: Path, echo: Echo, confirm: Confirm | None) -> Located:
    """Return an engine that answers; install and start the distribution's one when that is allowed.

    Args:
        home_root: The school's home: log and pid of an engine started here go to ``school/engine/`` in it.
        echo: Told what is done, line by line.
        confirm: Asked before anything is changed; None where nobody can be asked: then it is said and done.

    Raises:
        EngineUnavailableError: none answers and none can be started; the message says what to type.
        EnginePermissionError: there is one, and this user may not open its socket.
        CancelledError: the person said no.
    """
    result = search()
    if result.found:
        return result.found
    step = decide(result, this_host())
    if step is Step.TELL:
        raise result.error()
    with _one_at_a_time(echo):
        result = search()  # another process may have done it while we waited
        if result.found:
            return result.found
        host = this_host()
        step = decide(result, host)
        plan = _in_words(step, host)
        if confirm and not confirm(f"No container engine answers. {plan}?"):
            raise CancelledError(
                "No container engine answers, and none was to be started.", next_step=result.error().next_step
            )
        echo(f"No container engine answers. {plan}.")
        if step is Step.INSTALL:
            install(echo)
        return start(home_root / "school" / "engine", echo, systemd=this_host().systemd)


def install(echo: Echo) -> None:
    """Install the distribution's engine.

    Raises:
        EngineUnavailableError: apt failed.
    """
    options = ["-o", "DPkg::Lock::Timeout=120", "-y", "--no-install-recommends"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", *options, *PACKAGES]):
        if _stream(command, environment, echo):
            raise EngineUnavailableError(
                f"`{' '.join(command)}` failed, so no container engine could be installed.",
                next_step="Its output above says why; mend it and repeat.",
            )


def start(folder: Path, echo: Echo, *, systemd: bool) -> Located:
    """Start the engine and wait until it answers.

    Args:
        folder: Where log and pid file go when it is started as a detached process.
        echo: Told what is done.
        systemd: Let systemd start it.

    Raises:
        EngineUnavailableError: it did not come up; the message holds the end of its log.
    """
    if systemd:
        echo("systemctl start docker")
        if _stream(["systemctl", "start", "docker"], dict(os.environ), echo):
            raise EngineUnavailableError(
                "`systemctl start docker` failed.", next_step="See why: `journalctl -u docker -n 50`."
            )
        return _wait_until_it_answers(echo, None, None)
    log = folder / "dockerd.log"
    remove_stale_pid_files(_RUN, echo)
    _mount_cgroups(echo)
    process = start_detached(["dockerd"], folder)
    echo(f"started dockerd as process {process.pid}; its log is {log}")
    return _wait_until_it_answers(echo, process, log)


def remove_stale_pid_files(run: Path, echo: Echo, proc: Path = Path("/proc")) -> None:
    """Remove pid files of an engine that is gone: one whose number now belongs to another program blocks its start."""
    for path, name in ((run / "docker.pid", "dockerd"), (run / "docker/containerd/containerd.pid", "containerd")):
        try:
            pid = int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            continue
        except ValueError:
            pid = 0
        if pid and _program(proc, pid) == name:
            continue
        echo(f"removing the stale {path} (process {pid} is no {name})")
        path.unlink(missing_ok=True)


def start_detached(argv: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a program that outlives this one: own session, no terminal, no inherited files, output to a log.

    Its environment is a short list: a CI runner ends what carries its own mark.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = Path(argv[0]).name
    kept = re.compile(r"PATH|HOME|LANG|LC_\w+|TMPDIR|(HTTPS?|NO|ALL)_PROXY|SSL_CERT_(FILE|DIR)", re.IGNORECASE)
    environment = {key: value for key, value in os.environ.items() if kept.fullmatch(key)}
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    (folder / f"{name}.pid").write_text(f"{process.pid}\n", encoding="ascii")
    return process


def _wait_until_it_answers(echo: Echo, process: subprocess.Popen[bytes] | None, log: Path | None) -> Located:
    candidate = Candidate(SOCKET, "started by the school")
    started = told = time.monotonic()
    while time.monotonic() - started < START_SECONDS:
        if probe(candidate) is Answer.ALIVE:
            return Located(candidate.endpoint, candidate.source)
        if process and process.poll() is not None:
            raise EngineUnavailableError(
                f"dockerd ended with {process.returncode} at its start. The end of its log:\n{_tail(log)}",
                next_step="It needs a machine of its own or a privileged container; mend what the log names "
                f"and repeat. The whole log: {log}.",
            )
        if time.monotonic() - told > 4:
            told = time.monotonic()
            echo(f"waiting for the engine ({told - started:.0f} s)")
        time.sleep(0.1)
    raise EngineUnavailableError(
        f"The engine did not answer within {START_SECONDS:.0f} s. The end of its log:\n{_tail(log)}",
        next_step=f"See the log: {log}." if log else "See why: `journalctl -u docker -n 50`.",
    )


def _tail(log: Path | None) -> str:
    if log is None or not log.exists():
        return "(no log)"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line for line in lines if "level=info" not in line][-12:])  # dockerd ends with much chatter


def _in_words(step: Step, host: Host) -> str:
    how = "with systemd" if host.systemd else "as a detached process"
    verb = (
        f"Install {' and '.join(PACKAGES[:2])} with apt, and start the engine" if step is Step.INSTALL else "Start it"
    )
    return f"{verb} {how}"


def _program(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _mount_cgroups(echo: Echo) -> None:
    """Mount the control groups where no init system did: dockerd does not start without them."""
    folder = Path("/sys/fs/cgroup")
    if folder.is_dir() and not any(folder.iterdir()):
        echo(f"mounting the control groups at {folder}")
        _stream(["mount", "-t", "cgroup2", "none", str(folder)], dict(os.environ), echo)


def _is_debian_like(os_release: Path) -> bool:
    try:
        text = os_release.read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r'^ID="?(debian|ubuntu)"?$', text, re.MULTILINE) is not None


def _stream(argv: list[str], environment: dict[str, str], echo: Echo) -> int:
    """Run a command, pass its output on line by line, and return its exit code."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as process:
        for line in process.stdout or ():
            echo(f"  {line.rstrip()}")
    return process.returncode


@contextlib.contextmanager
def _one_at_a_time(echo: Echo) -> Iterator[None]:
    """Hold the host's lock for starting an engine."""
    Path(_LOCK).parent.mkdir(parents=True, exist_ok=True)
    with Path(_LOCK).open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            echo("waiting for another process that starts the engine")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ask_on_terminal(question: str) -> bool:
    """Ask on the terminal, with yes as the default."""
    sys.stderr.write(f"{question} [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"", "y", "yes"}


def main() -> int:
    """Bring the engine up and print its address."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.engine.provision", description=main.__doc__)
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("SCHOOL_HOME") or "~/.hermes"))
    home = parser.parse_args().home.expanduser().absolute()

    on_terminal = sys.stdin.isatty() and sys.stderr.isatty()

    def echo(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    try:
        located = ensure_engine(home, echo, ask_on_terminal if on_terminal else None)
    except SchoolError as error:
        echo(f"{error.message}\n{error.next_step}")
        return error.exit_code
    echo(f"engine: {located}")
    sys.stdout.write(f"{located.endpoint}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
