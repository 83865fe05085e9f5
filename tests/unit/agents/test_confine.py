"""The filter that PID 1 puts on top of the engine's: what it takes away and what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from orchestrator.agents.confine import SOCKETS, X32, encoded, program

KNOWN = os.uname().machine in SOCKETS
PROBE = """
import ctypes, errno, json, socket
from orchestrator.agents.confine import confine
assert confine()
found = {}
for name in ("UNIX", "INET", "INET6", "NETLINK", "VSOCK", "ALG", "PACKET", "BLUETOOTH"):
    family = getattr(socket, "AF_" + name, 31)
    try:
        socket.socket(family, socket.SOCK_RAW if name == "NETLINK" else socket.SOCK_DGRAM).close()
        found[name] = "made"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
library = ctypes.CDLL(None, use_errno=True)
for number in (425, 426, 427):
    found[number] = (library.syscall(number, 1, 0), errno.errorcode[ctypes.get_errno()])
print(json.dumps(found))
"""


@pytest.mark.skipif(not KNOWN, reason="no filter is known for this machine")
def test_only_four_families_of_sockets_and_no_io_uring_are_left():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [found.pop(name) for name in ("UNIX", "INET", "INET6", "NETLINK")] == ["made"] * 4
    assert [found.pop(number) for number in ("425", "426", "427")] == [[-1, "ENOSYS"]] * 3
    assert set(found.values()) == {"EAFNOSUPPORT"}


@pytest.mark.parametrize("machine", SOCKETS)
def test_a_call_of_another_architecture_is_refused(machine):
    assert run(program(machine), arch=0x40000003, number=1) != ALLOWED  # i386
    assert run(program(machine), arch=SOCKETS[machine][0], number=1) == ALLOWED


def test_the_second_numbering_of_x86_64_is_refused():
    arch, (socket_call, _) = SOCKETS["x86_64"]
    assert run(program("x86_64"), arch=arch, number=X32 + socket_call, first=40) != ALLOWED


@pytest.mark.parametrize("machine", SOCKETS)
@pytest.mark.parametrize("family", range(46))
def test_each_family(machine, family):
    arch, calls = SOCKETS[machine]
    for call in calls:
        assert (run(program(machine), arch=arch, number=call, first=family) == ALLOWED) == (family in {1, 2, 10, 16})


def test_an_unknown_machine_has_no_filter():
    assert program("riscv64") == []


def test_a_filter_is_eight_bytes_a_step():
    assert len(encoded(program("x86_64"))) == 8 * len(program("x86_64"))


ALLOWED = 0x7FFF0000


def run(steps, *, arch, number, first=0):
    """Interpret a filter as the kernel does."""
    data = {0: number, 4: arch, 16: first}
    at, value = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            value = data[operand]
        elif code == 0x15:
            at += yes if value == operand else no
        elif code == 0x35:
            at += yes if value >= operand else no
        else:
            return operand
