"""A second system call filter on top of the engine's own, put on by PID 1 before the agent starts.

A network namespace closes IP, not every family of sockets: VM sockets lead to the hypervisor whatever the namespace,
and the default profiles of older engines let them and io_uring (which makes sockets without the system call) through.
Filters add up, so this can only take away, on any engine. What it leaves: Unix, IPv4, IPv6 and netlink sockets.
Programs of another architecture (32-bit ones on a 64-bit kernel) are refused: their calls have other numbers.
"""

from __future__ import annotations

import array
import errno
import os
import struct

from orchestrator.agents import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_SECCOMP, MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
ALLOW, REFUSE = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*
LOAD, EQUAL, NOT_BELOW, RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, JMP|JEQ|K, JMP|JGE|K, RET|K
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little endian

FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
IO_URING = (425, 426, 427)  # setup, enter, register: the same on every architecture
SOCKETS = {"x86_64": (0xC000003E, (41, 53)), "aarch64": (0xC00000B7, (198, 199))}  # audit arch; socket, socketpair
X32 = 0x40000000  # x86-64's second numbering begins here

Step = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def program(machine: str) -> list[Step]:
    """Return the filter for a machine as ``os.uname`` names it; empty for one whose numbers are not known here."""
    if machine not in SOCKETS:
        return []
    arch, sockets = SOCKETS[machine]
    refuse_call = REFUSE | errno.ENOSYS
    refuse_family = REFUSE | errno.EAFNOSUPPORT
    steps: list[Step] = [
        (LOAD, 0, 0, ARCH),
        (EQUAL, 1, 0, arch),
        (RETURN, 0, 0, refuse_call),
        (LOAD, 0, 0, NUMBER),
    ]
    for number in IO_URING:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, refuse_call)]
    if machine == "x86_64":
        steps += [(NOT_BELOW, 0, 1, X32), (RETURN, 0, 0, refuse_call)]
    steps += [
        (EQUAL, 2, 0, sockets[0]),
        (EQUAL, 1, 0, sockets[1]),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, FIRST_ARGUMENT),
    ]
    for family in FAMILIES:
        steps += [(EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
    return [*steps, (RETURN, 0, 0, refuse_family)]


def encoded(steps: Sequence[Step]) -> bytes:
    """Return a filter as the kernel takes it."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def confine() -> bool:
    """Put the filter on this process and all that it will start; false where none is known for this machine.

    There is no way back. No new privileges are part of it, as the kernel wants them.

    Raises:
        OSError: The kernel refused; the agent must not be started then.
    """
    steps = program(os.uname().machine)
    if not steps:
        return False
    code = array.array("B", encoded(steps))  # it knows its address, and loads faster than ctypes
    header = struct.pack("=HxxxxxxQ", len(steps), code.buffer_info()[0])
    if process.prctl(PR_SET_NO_NEW_PRIVS, 1) or process.prctl(PR_SET_SECCOMP, MODE_FILTER, header):
        raise OSError("the system call filter was refused")
    return True
