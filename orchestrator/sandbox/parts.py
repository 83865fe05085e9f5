"""The specs of the standing parts: omniroute, gate, rehearsal and the two teachers (R-29, R-53).

``standing.ensure`` brings one up from what is written here, and ``compose/school.yaml`` is generated from the same
specs. Names carry the home's id and the engine chooses the port, so that two homes share an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import layout
from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, ContainerSpec, Healthcheck, Kind, Mount
from orchestrator.sandbox.standing import PartSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.home import Home
    from orchestrator.settings import Settings

TEACHERS: tuple[str, ...] = ("cto", "coo")

OMNIROUTE_SECRETS = ("jwt_secret", "api_key_secret", "storage_key", "admin_password")
SECRETS_TARGET = "/run/school-secrets"


def part_name(home: Home, kind: Kind) -> str:
    """Return a standing container's name."""
    return f"school-{home.id}-{kind}"


def network_name(home: Home) -> str:
    """Return the name of the bridge network of omniroute, gate and rehearsal."""
    return f"school-{home.id}"


def volume_name(home: Home) -> str:
    """Return the name of OmniRoute's data volume."""
    return f"school-{home.id}-omniroute-data"


def labels(home: Home, kind: Kind | None = None) -> dict[str, str]:
    """Return the labels that prove an object to be this home's."""
    found = {LABEL_HOME: home.id}
    if kind is not None:
        found[LABEL_KIND] = kind
    return found


def teacher_kind(teacher: str) -> Kind:
    """Return the label value of a teacher."""
    return Kind(f"teacher-{teacher}")


def teacher_grant(teacher: str) -> str:
    """Return the name of a teacher's standing grant at the gate."""
    return f"teacher-{teacher}"


@dataclass(frozen=True, slots=True)
class PartsPlan:
    """The parts of one home, made from its settings and the images that exist."""

    home: Home
    settings: Settings
    images: Mapping[str, str]  # "service", "omniroute" -> tag
    userns_mode: str = ""

    def _frame(self, kind: Kind, **over: object) -> ContainerSpec:
        """What every standing container shares: no root, no capability, read-only root, restarted by the engine."""
        base: dict[str, object] = {
            "image": self.images["service"],
            "name": part_name(self.home, kind),
            "labels": labels(self.home, kind),
            "user": f"{self.home.uid}:{self.home.gid}",
            "tmpfs": {"/tmp": "rw,nosuid,nodev,size=64m,mode=1777"},  # noqa: S108
            "pids_limit": 256,
            "memory": 512 << 20,
            "restart": "unless-stopped",
            "userns_mode": self.userns_mode,
            "stop_timeout": 5,
        }
        return ContainerSpec(**(base | over))  # type: ignore[arg-type]

    def prepare(self) -> None:
        """Make the folders that the specs mount, owned by the containers' uid."""
        home = self.home
        folders = [home.gate / name for name in ("control", "sockets", "state", "log")]
        folders += [home.gate / "sockets" / teacher_grant(teacher) for teacher in TEACHERS]
        folders += [home.sessions / teacher for teacher in TEACHERS]
        folders.append(home.keys / "omniroute")
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.hand_over(folder)
        for name in OMNIROUTE_SECRETS:
            path = home.secret(f"omniroute/{name}")
            home.hand_over(path)
        for teacher in TEACHERS:
            home.hand_over(home.secret(f"seal-{teacher}.key"))

    def omniroute(self) -> PartSpec:
        """OmniRoute: the only part with provider keys and the internet."""
        spec = self._frame(
            Kind.OMNIROUTE,
            image=self.images["omniroute"],
            network=network_name(self.home),
            network_aliases=("omniroute",),
            publish={20128: ("127.0.0.1", self.settings.omniroute_port)},
            mounts=(
                Mount(volume_name(self.home), "/data", type="volume"),
                Mount(str(self.home.keys / "omniroute"), SECRETS_TARGET, read_only=True),
            ),
            tmpfs={"/tmp": "rw,nosuid,nodev,size=256m,mode=1777"},  # noqa: S108
            memory=1024 << 20,
        )
        return PartSpec(Kind.OMNIROUTE, spec, needs_health=False, timeout=90)

    def rehearsal(self) -> PartSpec:
        """The scripted model."""
        spec = self._frame(
            Kind.REHEARSAL,
            entrypoint=("python3", "-m", "orchestrator.rehearsal"),
            network=network_name(self.home),
            network_aliases=("rehearsal",),
            mounts=(Mount(str(self.home.rehearsals), layout.REHEARSAL_SCENARIOS, read_only=True),),
            healthcheck=Healthcheck(("CMD", "python3", "-m", "orchestrator.rehearsal", "health"), interval=30),
        )
        return PartSpec(Kind.REHEARSAL, spec, needs_health=True, timeout=30)

    def gate(self, upstream: str = "http://omniroute:20128") -> PartSpec:
        """The reverse proxy in front of OmniRoute, one socket per grant."""
        spec = self._frame(
            Kind.GATE,
            entrypoint=("python3", "-m", "orchestrator.gate"),
            network=network_name(self.home),
            network_aliases=("gate",),
            env={"SCHOOL_UPSTREAM": upstream},
            mounts=(Mount(str(self.home.gate), layout.GATE_ROOT),),
            healthcheck=Healthcheck(("CMD", "python3", "-m", "orchestrator.gate", "health"), interval=30),
        )
        return PartSpec(Kind.GATE, spec, needs_health=True, timeout=30)

    def teacher(self, teacher: str) -> PartSpec:
        """A reviewer: no network, no tools, its own gate socket (zones of trust in DESIGN)."""
        home, settings = self.home, self.settings
        spec = self._frame(
            teacher_kind(teacher),
            entrypoint=("python3", "-m", "orchestrator.teacher"),
            network="none",
            env={
                "SCHOOL_TEACHER": teacher,
                "SCHOOL_REVIEW_MODEL": settings.review_model,
                "SCHOOL_REVIEW_ATTEMPTS": str(settings.review_attempts),
                "SCHOOL_REVIEW_BUDGET": str(settings.review_budget),
                "SCHOOL_REVIEW_PARALLEL": str(settings.review_parallel),
                "BOOKBAG_DIR": layout.TEACHER_BOOKBAG,
                "SIGNAL_DIR": layout.TEACHER_SIGNALS,
                "LOCK_DIR": layout.TEACHER_LOCKS,
                "DEFAULT_POLL_INTERVAL": str(settings.default_poll_interval),
                "DEFAULT_REVIEW_TIMEOUT": str(settings.default_review_timeout),
                "MAX_SESSION_CYCLES": str(settings.max_session_cycles),
            },
            mounts=(
                Mount(str(home.bookbags), layout.TEACHER_BOOKBAG),
                Mount(str(home.signals), layout.TEACHER_SIGNALS),
                Mount(str(home.locks), layout.TEACHER_LOCKS),
                Mount(str(home.sessions / teacher), layout.TEACHER_SESSIONS),
                Mount(str(home.evidence), layout.TEACHER_EVIDENCE, read_only=True),
                Mount(str(home.keys / f"seal-{teacher}.key"), layout.TEACHER_SEAL_KEY, read_only=True),
                Mount(str(home.gate / "sockets" / teacher_grant(teacher)), layout.GATE_DIR, read_only=True),
            ),
            healthcheck=Healthcheck(("CMD", "python3", "-m", "orchestrator.teacher", "health"), interval=30),
        )
        return PartSpec(teacher_kind(teacher), spec, needs_health=True, timeout=30)
