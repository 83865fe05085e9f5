"""The engine and the kernel, tried from inside a student's container."""

import contextlib
import ctypes
import errno
import glob
import os
import resource
import signal
import socket
import stat
import subprocess
import time

from harness import LIBC, Through, attack, call, forked, make, refused, shell, write

TMPFS, SELF = b"tmpfs", "/proc/self"
X86 = os.uname().machine == "x86_64"
SYSCALLS = {
    "ptrace": (101, 117), "unshare": (272, 97), "setns": (308, 268), "keyctl": (250, 219), "add_key": (248, 217),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "init_module": (175, 105),
    "delete_module": (176, 106), "kexec_load": (246, 104), "open_by_handle_at": (304, 265), "syslog": (103, 116),
    "reboot": (169, 142), "swapon": (167, 224), "pivot_root": (155, 41), "clone3": (435, 435),
    "process_vm_readv": (310, 270), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "kcmp": (312, 272), "acct": (163, 89), "settimeofday": (164, 170), "quotactl": (179, 60),
}  # fmt: skip


def number(name):
    return SYSCALLS[name][0 if X86 else 1]


def mount(source, target, kind, flags=0, data=None):
    if LIBC.mount(source, target, kind, flags, data):
        raise OSError(ctypes.get_errno(), "mount")


@attack("kernel-engine-socket")
def engine_socket():
    places = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
              "/run/crio/crio.sock", "/var/run/docker/metrics.sock"]  # fmt: skip
    found = shell("find / -xdev -type s 2>/dev/null; find /school /workspace /tmp /home -type s 2>/dev/null")[1].split()
    for place in {*places, *found}:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(3)
            refused(one.connect, place)
    return "no socket but its own gate's exists"


@attack("kernel-abstract-sockets")
def abstract_sockets():
    with open("/proc/net/unix") as file:
        names = [line.split()[-1] for line in file if "@" in line]
    for name in names:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(3)
            refused(one.connect, "\0" + name[1:])
    return f"{len(names)} abstract sockets in its own network namespace"


@attack("kernel-mount")
def mounts():
    return refused(mount, TMPFS, b"/tmp", TMPFS)


@attack("kernel-remount-root")
def remount_root():
    MS_REMOUNT, MS_BIND = 32, 4096
    refused(mount, None, b"/", None, MS_REMOUNT)
    refused(mount, None, b"/school/inbox", None, MS_REMOUNT | MS_BIND)
    return refused(make, "/usr/bin/escape")


@attack("kernel-new-mount-api")
def new_mount_api():
    return [
        call(number("open_tree"), -100, b"/", 1),
        call(number("fsopen"), TMPFS, 0),
        call(number("move_mount"), 0, b"", 0, b"", 0),
    ]


@attack("kernel-unmount-pointer")
def unmount():
    def umount(path):
        if LIBC.umount2(path, 2):
            raise OSError(ctypes.get_errno(), "umount")

    return [refused(umount, path) for path in (b"/workspace/.git", b"/etc/passwd", b"/school/inbox", b"/proc/kcore")]


@attack("kernel-pivot-root")
def pivot_root():
    return [call(number("pivot_root"), b"/tmp", b"/tmp"), refused(os.chroot, "/tmp")]


@attack("kernel-user-namespace")
def user_namespace():
    CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x20000, 0x40000000
    return [call(number("unshare"), flag) for flag in (CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWNS, CLONE_NEWNET)]


@attack("kernel-clone3-namespace")
def clone3():
    arguments = (ctypes.c_uint64 * 11)(0x10000000, *[0] * 10)
    arguments[4] = signal.SIGCHLD
    ctypes.set_errno(0)
    pid = LIBC.syscall(ctypes.c_long(number("clone3")), ctypes.byref(arguments), ctypes.c_size_t(88))
    if pid == 0:
        os._exit(0)
    if pid > 0:
        raise Through("a user namespace was made")
    return errno.errorcode.get(ctypes.get_errno())


@attack("kernel-setns")
def setns():
    held = []
    for path in glob.glob("/proc/1/ns/*"):
        held.append(refused(os.open, path, os.O_RDONLY))
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    held.append(call(number("setns"), own, 0x20000))
    os.close(own)
    return set(held)


@attack("kernel-ptrace-pid1")
def ptrace_pid1():
    return [call(number("ptrace"), request, 1, None, None) for request in (16, 0x4206)]


@attack("kernel-ptrace-agent")
def ptrace_agent():
    """The process that started this command passes its exit code on: taken over, it would say what we like."""
    tried = []
    for path in glob.glob("/proc/[0-9]*"):
        pid = int(path.rpartition("/")[2])
        with contextlib.suppress(OSError), open(f"{path}/cmdline", "rb") as file:
            line = file.read()
            if pid in (os.getpid(), os.getppid()) or b"agents/entry.py" not in line:
                continue
            tried.append(call(number("ptrace"), 16, pid, None, None))
            refused(os.listdir, f"{path}/fd")
            refused(os.open, f"{path}/mem", os.O_RDWR)
    if not tried:
        raise RuntimeError("the entry point was not found")
    return tried


@attack("kernel-read-pid1")
def read_pid1():
    held = [refused(os.open, f"/proc/1/{name}", os.O_RDONLY) for name in ("environ", "mem", "maps", "auxv", "stack")]
    held += [
        refused(os.listdir, "/proc/1/fd"),
        refused(os.listdir, "/proc/1/root"),
        refused(os.readlink, "/proc/1/exe"),
    ]
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_size_t * 2)(0x400000, 8)
    held.append(
        call(number("process_vm_readv"), 1, vector, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), ctypes.c_ulong(0))
    )
    return set(held)


@attack("kernel-signal-pid1")
def signal_pid1():
    for one in (
        signal.SIGSTOP,
        signal.SIGKILL,
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGSEGV,
        signal.SIGUSR1,
    ):
        with contextlib.suppress(PermissionError):
            os.kill(1, one)
    time.sleep(0.5)
    with open("/proc/1/status") as file:
        state = next(line.split()[1] for line in file if line.startswith("State"))
    if state in "TtZX":
        raise Through(f"PID 1 is in state {state}")
    return f"PID 1 goes on (state {state})"


@attack("kernel-speak-for-pid1")
def speak_for_pid1():
    """An event on PID 1's own output would be believed: a forged end of the run."""
    forged = b'{"v":1,"ts":1,"type":"agent.finished","status":"completed","reason":"FORGED","command_exit_code":0}\n'
    held = [refused(os.open, f"/proc/1/fd/{number}", os.O_WRONLY) for number in (1, 2)]
    for place in ("/dev/console", "/dev/tty", "/dev/pts/0"):
        held.append(refused(write, place, forged))
    print(forged.decode(), flush=True)  # as output it is only output; the host's side is looked at by the test
    return set(held)


@attack("kernel-core-pattern")
def core_pattern():
    places = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sysrq-trigger",
              "/sys/kernel/uevent_helper", "/proc/sys/vm/panic_on_oom", "/proc/sys/fs/binfmt_misc/register"]  # fmt: skip
    return {place: refused(write, place) for place in places}


@attack("kernel-release-agent")
def release_agent():
    tried = {}
    for place in [
        *glob.glob("/sys/fs/cgroup/*/release_agent"),
        *glob.glob("/sys/fs/cgroup/*/notify_on_release"),
        "/sys/fs/cgroup/cgroup.procs",
    ]:
        tried[place] = refused(write, place)
    for folder in [*glob.glob("/sys/fs/cgroup/*"), "/sys/fs/cgroup"]:
        if os.path.isdir(folder):
            tried[folder] = refused(os.mkdir, f"{folder}/escape")
    tried["mount"] = refused(mount, b"cgroup", b"/tmp", b"cgroup", 0, b"rdma")
    return set(tried.values())


@attack("kernel-raise-own-limits")
def cgroup_limits():
    names = (
        "memory/memory.limit_in_bytes",
        "pids/pids.max",
        "cpu/cpu.cfs_quota_us",
        "memory.max",
        "pids.max",
        "cpu.max",
    )
    return {name: refused(write, f"/sys/fs/cgroup/{name}", b"-1") for name in names}


def _limit_raised():
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        raise OSError(errno.EPERM, "setrlimit") from None


@attack("kernel-raise-rlimits")
def rlimits():
    return refused(_limit_raised)


@attack("kernel-overwrite-runtime")
def overwrite_runtime():
    """/proc/<pid>/exe of the runtime, opened for writing while it enters the container."""
    held = set()
    for path in glob.glob("/proc/[0-9]*/exe"):
        held.add(refused(os.open, path, os.O_WRONLY))
    return held


@attack("kernel-leaked-descriptors")
def leaked_descriptors():
    leads = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            leads[name] = os.readlink(f"/proc/self/fd/{name}")
    outside = {
        n: t
        for n, t in leads.items()
        if not t.startswith(("pipe:", "/dev/null", "/proc/", "/tmp/", "socket:", "anon_inode:"))
    }
    if outside or not os.getcwd().startswith("/workspace"):
        raise Through(f"open descriptors: {outside}, cwd {os.getcwd()}")
    code, text = shell(
        "ls -d /proc/self/fd/*/../../../../etc/shadow /proc/self/cwd/../../../../../root/.ssh 2>/dev/null"
    )
    return f"{len(leads)} descriptors, all of its own"


@attack("kernel-capabilities")
def capabilities():
    with open(f"{SELF}/status") as file:
        rows = dict(line.rstrip().split(":\t", 1) for line in file if ":\t" in line)
    held = {name: rows[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    if any(int(value, 16) for value in held.values()):
        raise Through(str(held))
    make("/tmp/owned")
    return [
        refused(os.chown, "/tmp/owned", 0, 0),
        refused(os.setuid, 0),
        refused(os.setgroups, [0]),
        refused(os.setgid, 0),
    ]


@attack("kernel-setuid-programs")
def setuid_programs():
    found = shell("find / -xdev -perm /6000 -type f 2>/dev/null")[1].split()
    for program in found:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [program, "root", "-c", "id -u"], capture_output=True, timeout=5, stdin=subprocess.DEVNULL, check=False
            )
            if done.stdout.strip() == b"0":
                raise Through(program)
    with open(f"{SELF}/status") as file:
        if "NoNewPrivs:\t1" not in file.read():
            raise Through("privileges can be gained by exec")
    os.chmod("/tmp/owned" if os.path.exists("/tmp/owned") else make("/tmp/owned") and "/tmp/owned", 0o6777)
    return f"no_new_privs; {len(found)} setuid programs in the image"


@attack("kernel-raw-sockets")
def raw_sockets():
    return [
        refused(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
        refused(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0),
    ]


@attack("kernel-vm-sockets")
def vm_sockets():
    """A VM socket leads to the hypervisor; no network namespace closes it."""
    return refused(socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM)


@attack("kernel-odd-socket-families")
def odd_sockets():
    held = {}
    for family in (
        9,
        15,
        21,
        26,
        29,
        30,
        31,
        38,
        39,
        41,
        44,
    ):  # X25, KEY, RDS, LLC, CAN, TIPC, BLUETOOTH, ALG, NFC, KCM, XDP
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
            held[family] = refused(socket.socket, family, kind)
    return set(held.values())


@attack("kernel-io-uring")
def io_uring():
    """It makes sockets and opens files without the system calls that a filter looks at."""
    parameters = ctypes.create_string_buffer(120)
    return [call(425, 8, parameters), call(426, 3, 1, 1, 0, None, 0), call(427, 3, 0, None, 0)]


@attack("kernel-foreign-architecture")
def foreign_architecture():
    """On x86-64 the second numbering; a filter that compares numbers alone lets it through."""
    return (
        [call(0x40000000 + 41, 40, 1, 0), call(0x40000000 + 101, 16, 1, None, None)]
        if X86
        else "no second numbering here"
    )


@attack("kernel-keyring")
def keyring():
    return [call(number("keyctl"), 0, -3, 1), call(number("add_key"), b"user", b"x", b"y", 1, -3)]


@attack("kernel-bpf-perf-userfault")
def bpf():
    attr = (ctypes.c_uint32 * 32)(1, 128)
    return [
        call(number("bpf"), 0, attr, 128),
        call(number("perf_event_open"), attr, 0, -1, -1, 0),
        call(number("userfaultfd"), 0),
    ]


@attack("kernel-modules")
def modules():
    return [
        call(number("init_module"), b"", 0, b""),
        call(number("delete_module"), b"x", 0),
        call(number("kexec_load"), 0, 0, None, 0),
    ]


@attack("kernel-open-by-handle")
def open_by_handle():
    """The root directory of the host's file system has a well-known handle."""
    handle = (ctypes.c_ubyte * 16)(8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0)
    place = os.open("/etc/passwd", os.O_RDONLY)
    try:
        return call(number("open_by_handle_at"), place, handle, os.O_RDONLY)
    finally:
        os.close(place)


@attack("kernel-devices")
def devices():
    held = {}
    for name, major, minor in (("disk", 8, 0), ("mem", 1, 1), ("loop", 7, 0), ("fuse", 10, 229)):
        held[name] = refused(os.mknod, f"/tmp/{name}", stat.S_IFBLK | 0o600, os.makedev(major, minor))
        refused(os.mknod, f"/workspace/{name}", stat.S_IFCHR | 0o600, os.makedev(major, minor))
    for name in (
        "mem",
        "kmsg",
        "port",
        "sda",
        "vda",
        "fuse",
        "kvm",
        "loop-control",
        "nvme0n1",
        "mapper/control",
        "net/tun",
    ):
        held[name] = refused(os.open, f"/dev/{name}", os.O_RDWR)
    return set(held.values())


@attack("kernel-log")
def kernel_log():
    """On a kernel that lets anybody read its log, seccomp or a capability has to hold it."""
    buffer = ctypes.create_string_buffer(4096)
    return [call(number("syslog"), 3, buffer, 4096), call(number("syslog"), 2, buffer, 4096)]


@attack("kernel-masked-proc")
def masked():
    held = {}
    for place in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"):
        try:
            with open(place, "rb") as file:
                held[place] = len(file.read(64))
        except OSError as error:
            held[place] = errno.errorcode[error.errno]
    for folder in ("/proc/acpi", "/proc/scsi", "/sys/firmware"):
        with contextlib.suppress(OSError):
            held[folder] = len(os.listdir(folder))
    if any(value for value in held.values() if isinstance(value, int)):
        raise Through(str(held))
    return held


@attack("kernel-system-state")
def system_state():
    def hostname():
        if LIBC.sethostname(b"x", 1):
            raise OSError(ctypes.get_errno(), "sethostname")

    return [refused(time.clock_settime, time.CLOCK_REALTIME, 1.0), refused(hostname), call(number("swapon"), b"/tmp/owned", 0),
            call(number("reboot"), 0xFEE1DEAD, 672274793, 0x89ABCDEF, None), call(number("acct"), b"/tmp/owned"),
            call(number("quotactl"), 0, None, 0, None)]  # fmt: skip


@attack("kernel-write-sys")
def write_sys():
    held = {}
    for place in (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/module/kernel/parameters/panic",
        "/sys/class/net/lo/mtu",
        "/proc/sys/net/ipv4/ip_forward",
    ):
        held[place] = refused(write, place)
    return set(held.values())


@attack("kernel-priorities")
def priorities():
    held = [refused(os.nice, -5), refused(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))]
    held.append(refused(write, f"{SELF}/oom_score_adj", b"-1000"))
    return held


@attack("kernel-open-files")
def open_files():
    def until_refused():
        kept = []
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
            if len(kept) > 70_000:
                return len(kept)

    def child():
        try:
            until_refused()
        except OSError:
            return 0
        return 1

    if forked(child):
        raise Through("no bound on open files")
    return "the nofile limit"


@attack("kernel-fork-bomb", 30)
def fork_bomb():
    """As many processes as the kernel gives; the bound must come from outside."""
    read, ready = os.pipe()

    def child():
        count = 0
        while count < 1200:
            try:
                pid = os.fork()
            except OSError:
                os.write(ready, str(count).encode())
                os.killpg(0, signal.SIGKILL)
            if pid == 0:
                time.sleep(20)
                os._exit(0)
            count += 1
        os.write(ready, b"1200")
        os.killpg(0, signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        child()
    os.waitpid(pid, 0)
    count = int(os.read(read, 16))
    if count > 1000:
        raise Through(f"{count} processes")
    return f"{count} processes, then EAGAIN"


@attack("kernel-memory-bomb", 60)
def memory_bomb():
    def child():
        hog = []
        for _ in range(1024):
            hog.append(bytearray(b"x" * (1 << 20)))
        return 0

    status = forked(child)
    if not (os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 70):
        raise Through("1 GB was given")
    return f"ended with {status}"


def fill(folder):
    """Write files until the folder refuses, or 256 MB are in it."""
    written, names = 0, []
    try:
        while written < 256 << 20:
            names.append(f"{folder}/bomb{len(names)}")
            with open(names[-1], "wb", buffering=0) as file:
                for _ in range(16):
                    written += file.write(b"\0" * (1 << 20))
    except OSError as error:
        return f"{errno.errorcode[error.errno]} after {written >> 20} MB"
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(name)
    raise Through(f"{written >> 20} MB in {folder}")


@attack("kernel-tmpfs-bomb", 30)
def tmpfs_bomb():
    return [fill(folder) for folder in ("/tmp", os.environ["HOME"])]


@attack("kernel-shared-memory-bomb", 30)
def shm_bomb():
    return fill("/dev/shm")


def throttled():
    """How often the kernel held this container back, from its cgroup."""
    for place in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat"):
        with contextlib.suppress(OSError), open(place) as file:
            return int(dict(line.split() for line in file)["nr_throttled"])
    raise RuntimeError("no cpu.stat")


@attack("kernel-cpu-burn", 40)
def cpu_burn():
    """As many processes as it likes, none of which ever waits."""
    before, started = throttled(), time.monotonic()
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            while True:
                pass
        children.append(pid)
    while throttled() == before and time.monotonic() - started < 20:
        time.sleep(0.2)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if throttled() == before:
        raise Through("nothing held it back in 20 s")
    return f"held back {throttled() - before} times"


@attack("kernel-daemonise")
def daemonise():
    """Left running, deaf to every signal that can be ignored; the test looks whether it survives the container."""
    shell("(setsid sh -c 'trap \"\" TERM HUP INT QUIT; while :; do sleep 1; done' >/dev/null 2>&1 &)")
    return "left running for the test to look for"


@attack("kernel-change-the-harness")
def change_the_harness():
    """The entry point's own code, the account files, the brief: all read before or after this runs."""
    held = {}
    for place in (
        "/school/lib/orchestrator/agents/entry.py",
        "/school/inbox/brief.json",
        "/etc/passwd",
        "/etc/group",
        "/etc/hosts",
        "/etc/resolv.conf",
        "/etc/ld.so.preload",
        "/usr/bin/python3",
    ):
        held[place] = refused(make, place)
    return set(held.values())
