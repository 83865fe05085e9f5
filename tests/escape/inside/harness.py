"""Runs attacks inside a student's container and prints one JSON line for each.

Standard library only: this text is put in front of a script of attacks and the whole is given to the container's own
Python. An attack returns what held it, or raises ``Through``. Nothing here decides whether a test passes but the
attack's own attempt.
"""

import contextlib
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import traceback

LIBC = ctypes.CDLL(None, use_errno=True)
ATTACKS = []


class Through(Exception):
    """The attack worked."""


def attack(name, seconds=20):
    """Register an attack under its name in the catalogue."""

    def register(function):
        ATTACKS.append((name, seconds, function))
        return function

    return register


def refused(function, *arguments):
    """Call something that must be refused by the system; return how it was."""
    try:
        answer = function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except subprocess.SubprocessError as error:
        return type(error).__name__
    raise Through(f"{getattr(function, '__name__', function)}{arguments!r} gave {answer!r}")


def call(number, *arguments):
    """Make a raw system call that must fail; return the name of its error."""
    ctypes.set_errno(0)
    answer = LIBC.syscall(ctypes.c_long(number), *arguments)
    if answer >= 0:
        raise Through(f"system call {number} gave {answer}")
    return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def write(path, text=b"x"):
    """Write to a file that exists, as an attacker would."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        return os.write(descriptor, text)
    finally:
        os.close(descriptor)


def make(path, text=b"x"):
    """Make a file."""
    with open(path, "wb") as file:
        return file.write(text)


def shell(command, seconds=15):
    """Run a shell command; return its exit code and its output."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=seconds, errors="replace", check=False
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def forked(function):
    """Run something that may end its process in a child; return the wait status."""
    pid = os.fork()
    if pid == 0:
        code = 70
        with contextlib.suppress(BaseException):
            code = function() or 0
        os._exit(code)
    return os.waitpid(pid, 0)[1]


class Late(Exception):
    """The attack took too long: nothing answered."""


def alarm(*_):
    raise Late


def main(names=None):
    """Carry out the attacks, each on its own clock."""
    signal.signal(signal.SIGALRM, alarm)
    for name, seconds, function in ATTACKS:
        if names and name not in names:
            continue
        signal.alarm(seconds)
        try:
            held, detail = True, function()
        except Through as through:
            held, detail = False, str(through)
        except Late:
            held, detail = True, "no answer"
        except BaseException:  # noqa: BLE001 - a broken attack must be seen, and must not end the others
            held, detail = None, traceback.format_exc(limit=3)
        finally:
            signal.alarm(0)
        print("ATTACK " + json.dumps({"id": name, "held": held, "detail": str(detail)[:300]}), flush=True)
    sys.exit(0)
