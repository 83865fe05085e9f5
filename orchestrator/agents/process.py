"""What PID 1 does with processes: make itself untraceable, fork, reap, end them all, ask the kernel about memory.

Signals are checked for their sender: those from inside the leaf carry a pid, those from the host carry 0, so
that nothing the agent starts can end its supervisor (DESIGN, "A leaf's container, always").
"""

from __future__ import annotations

import os
import resource
import signal
import time

TYPE_CHECKING = False  # spelled out: importing typing would delay the first event of the agent
if TYPE_CHECKING:
    from collections.abc import Callable


PR_SET_DUMPABLE = 4
CRASHED = 70  # exit code of a forked child whose code raised (EX_SOFTWARE)
OUTSIDE = 0  # si_pid of a signal whose sender is not in this pid namespace
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def become_untraceable() -> None:
    """Close ``/proc/<pid>/environ`` and ``ptrace`` to other processes of the same uid.

    Raises:
        OSError: The kernel refused; the agent must not be started then.
    """
    if prctl(PR_SET_DUMPABLE, 0):
        raise OSError("prctl(PR_SET_DUMPABLE, 0) was refused")


def prctl(option: int, second: int, third: int | bytes = 0) -> int:
    """Make the system call; bytes are passed as a pointer to them, and 0 is success."""
    try:  # a fifth of the time that ``import ctypes`` takes
        import _ctypes

        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        return int(_ctypes.call_function(address, (option, second, third, 0, 0)))
    except (ImportError, AttributeError):
        import ctypes

        return int(ctypes.CDLL(None).prctl(option, second, third, 0, 0))


def block_stop_signals() -> None:
    """Hold SIGTERM and SIGINT back, so that ``stop_requested`` can look at their sender."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def stop_requested(*, trust_any_sender: bool) -> bool:
    """Take what is pending of SIGTERM and SIGINT; true when one came from outside the leaf."""
    while True:
        received = signal.sigtimedwait(STOP_SIGNALS, 0)
        if received is None:
            return False
        if trust_any_sender or received.si_pid == OUTSIDE:
            return True


def fork(work: Callable[[], int], *, stdout: int, new_session: bool = True) -> int:
    """Run ``work`` in a child and return its pid: /dev/null as input, ``stdout`` for both outputs, no core dumps."""
    pid = os.fork()
    if pid:
        return pid
    code = CRASHED
    try:
        if new_session:
            os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(stdout, 1)
        os.dup2(stdout, 2)
        code = work()
    except BaseException:  # noqa: BLE001 - the forked child must never return into PID 1's own code
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(code)


def signal_group(pid: int, number: int) -> None:
    """Signal a child's process group, or the child alone while it has not made its group yet."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        return


def kill_all(groups: list[int]) -> None:
    """SIGKILL everything: as PID 1 all of the namespace, daemonised processes too; else the given groups."""
    if os.getpid() == 1:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
    else:  # outside a pid namespace of our own, -1 would be every process of this user
        for pid in groups:
            signal_group(pid, signal.SIGKILL)


def reap() -> dict[int, int]:
    """Collect the children that have ended: pid -> wait status. Never blocks."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def reap_until_alone(groups: list[int], *, seconds: float) -> bool:
    """Kill and reap until no child is left; false when ``seconds`` were not enough (a process stuck in the kernel)."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        kill_all(groups)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            time.sleep(0.002)
    return False


def memory_kills() -> int:
    """How many processes of this container the kernel killed for memory; 0 when it can't be known."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported in PID 1
                for line in file:
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue
    return 0
