"""The specs of a bead's own containers: the student leaf and the verification of its result.

One function makes the hardened frame that both share, so that nothing can be allowed to one of them by accident
(DESIGN, "A leaf's container, always").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import layout
from orchestrator.engine.base import (
    LABEL_BEAD,
    LABEL_DEADLINE,
    LABEL_HOME,
    LABEL_KIND,
    ContainerSpec,
    Kind,
    Mount,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.home import Home

ENTRY = (layout.PYTHON, "-I", "-S", "-X", "frozen_modules=on", f"{layout.LIB}/orchestrator/agents/entry.py")
"""PID 1 of a leaf: isolated and without site, because start-up is what a person waits for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a leaf may use. Sizes in bytes, times in seconds."""

    wall: int
    memory: int
    cpus: float
    pids: int
    disk: int
    tmp: int
    runtime: str | None = None


@dataclass(frozen=True, slots=True)
class LeafFolders:
    """The host's folders that a leaf sees. ``gate`` is None for a container that may talk to nobody."""

    worktree: Path
    pointer: Path  # bind-mounted over the worktree's .git
    git: Path
    objects: Sequence[Mount]  # the repository's objects and its alternates, each at its own place
    inbox: Path
    outbox: Path
    passwd: Path
    group: Path
    gate: Path | None


def leaf_spec(
    home: Home,
    *,
    kind: Kind,
    bead: str,
    name: str,
    image: str,
    folders: LeafFolders,
    limits: Limits,
    deadline: int,
    env: Mapping[str, str],
    userns_mode: str = "",
    auto_remove: bool = True,
) -> ContainerSpec:
    """Return the spec of a leaf or of a verification.

    Args:
        home: Whose container it is.
        kind: ``Kind.LEAF`` or ``Kind.VERIFY``.
        bead: The bead it belongs to.
        name: Container name, ``study-{role}-{rand8}`` (R-23) or a derived one.
        image: Image tag or id; its ``/school/lib`` layer holds the entry point.
        folders: The host's folders to mount.
        limits: What it may use.
        deadline: Epoch seconds at which the entry point ends it.
        env: Further environment; nothing secret, an engine shows it.
        userns_mode: ``host`` where the engine remaps user ids.
        auto_remove: Off only for ``--keep``.
    """
    tmpfs = f"rw,exec,nosuid,nodev,size={limits.tmp}"
    mounts = [
        Mount(str(folders.worktree), layout.WORKSPACE),
        Mount(str(folders.pointer), f"{layout.WORKSPACE}/.git", read_only=True),
        Mount(str(folders.git), layout.GIT_DIR),
        *folders.objects,
        Mount(str(folders.inbox), layout.INBOX, read_only=True),
        Mount(str(folders.outbox), layout.OUTBOX),
        Mount(str(folders.passwd), "/etc/passwd", read_only=True),
        Mount(str(folders.group), "/etc/group", read_only=True),
    ]
    if folders.gate is not None:
        mounts.append(Mount(str(folders.gate), layout.GATE_DIR, read_only=True))
    return ContainerSpec(
        image=image,
        name=name,
        entrypoint=ENTRY,
        env={
            "HOME": layout.HOME,
            "USER": "student",
            "LOGNAME": "student",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",  # noqa: S108 - the container's own tmpfs
            "PYTHONDONTWRITEBYTECODE": "1",  # byte code must not become part of the work
            "SCHOOL_BEAD": bead,
            "SCHOOL_DEADLINE": str(deadline),
            **env,
        },
        labels={
            LABEL_HOME: home.id,
            LABEL_BEAD: bead,
            LABEL_KIND: kind,
            LABEL_DEADLINE: str(deadline),
        },
        mounts=tuple(mounts),
        tmpfs={
            "/tmp": f"{tmpfs},mode=1777",  # noqa: S108
            layout.HOME: f"{tmpfs},mode=0700,uid={home.uid},gid={home.gid}",
        },
        working_dir=layout.WORKSPACE,
        user=f"{home.uid}:{home.gid}",
        hostname="school",
        network="none",
        read_only=True,
        pids_limit=limits.pids,
        memory=limits.memory,
        cpus=limits.cpus,
        ulimits={"fsize": limits.disk, "core": 0, "nofile": 16384},
        log_max_size="16m",
        auto_remove=auto_remove,
        runtime=limits.runtime,
        userns_mode=userns_mode,
        stop_timeout=3,
    )


def account_files(home: Home) -> tuple[str, str]:
    """Return ``/etc/passwd`` and ``/etc/group`` for a leaf: a uid without an entry breaks git and getpass."""
    passwd = (
        "root:x:0:0:root:/root:/bin/sh\n"
        f"student:x:{home.uid}:{home.gid}:student:{layout.HOME}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    group = f"root:x:0:\nstudent:x:{home.gid}:\nnogroup:x:65534:\n"
    return passwd, group
