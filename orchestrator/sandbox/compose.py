"""The standing parts as a compose project, for people who prefer compose: ``compose/school.yaml``.

The file is printed from the same specs that ``standing.ensure`` works from, with compose's placeholders where a home
differs from another. The values for one home come from ``environment``; they carry each part's spec digest, so ``school
up`` takes what compose brought up for its own::

    python -m orchestrator.sandbox.compose > compose/school.yaml        # after a change of the specs
    python -m orchestrator.sandbox.compose --env > school.env           # for the home in force
    docker compose --env-file school.env -f compose/school.yaml up --detach

Compose starts containers and knows nothing of the school: ``school up`` afterwards configures the gateway and hands the
teachers' grants to the gate.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from orchestrator.engine.base import LABEL_SPEC, ContainerSpec, Kind
from orchestrator.errors import ConfigError, SchoolError
from orchestrator.home import Home
from orchestrator.sandbox.parts import TEACHERS, PartsPlan, labels, network_name, volume_name
from orchestrator.sandbox.standing import PartSpec, spec_digest
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.engine.base import Engine, Healthcheck, Mount

HEADER = """\
# The school's standing parts for docker compose. Generated, change the specs instead:
#   python -m orchestrator.sandbox.compose > compose/school.yaml
# The values for a home: python -m orchestrator.sandbox.compose --env > school.env
# Then: docker compose --env-file school.env -f compose/school.yaml up --detach, then `school up`, which
# configures the gateway and finds these parts by their labels.
"""

USER = "${SCHOOL_UID:?}:${SCHOOL_GID:?}"
NETWORK, VOLUME = "school", "omniroute-data"
_PLACEHOLDER = re.compile(r"\$(?!\{SCHOOL_[A-Z_]+(?::[-?][^}]*)?\})")


@dataclass(frozen=True, slots=True)
class _AnyHome(Home):
    """A home of which nothing is known yet: its paths and its id are placeholders."""

    @property
    def id(self) -> str:
        return "${SCHOOL_HOME_ID:?}"


def wanted(plan: PartsPlan) -> dict[Kind, PartSpec]:
    """Return every standing part of a plan."""
    found = [plan.omniroute(), plan.rehearsal(), plan.gate(), *(plan.teacher(teacher) for teacher in TEACHERS)]
    return {part.kind: part for part in found}


def document() -> str:
    """Return the compose file, the same for every home."""
    plan = _any_plan(_Recorder())
    services = {}
    for kind, part in wanted(plan).items():
        own = {**part.spec.labels, LABEL_SPEC: f"${{{_digest_variable(kind)}:?}}"}
        services[kind.value] = service(replace(part.spec, user=USER, labels=own))
    project = {
        "name": network_name(plan.home),
        "services": services,
        "networks": {NETWORK: {"name": network_name(plan.home), "driver": "bridge", "labels": labels(plan.home)}},
        "volumes": {VOLUME: {"name": volume_name(plan.home), "labels": labels(plan.home)}},
    }
    return HEADER + yaml.dump(_escaped(project), Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


def environment(plan: PartsPlan) -> dict[str, str]:
    """Return the values of the file's placeholders for one home."""
    home, settings = plan.home, plan.settings
    return {
        "SCHOOL_HOME": str(home.root),
        "SCHOOL_HOME_ID": home.id,
        "SCHOOL_BOOKBAG_DIR": str(home.bookbags),
        "SCHOOL_SIGNAL_DIR": str(home.signals),
        "SCHOOL_LOCK_DIR": str(home.locks),
        "SCHOOL_UID": str(home.uid),
        "SCHOOL_GID": str(home.gid),
        "SCHOOL_USERNS_MODE": plan.userns_mode,
        "SCHOOL_SERVICE_IMAGE": plan.images["service"],
        "SCHOOL_OMNIROUTE_IMAGE": plan.images["omniroute"],
        **{_variable(name): _text(getattr(settings, name)) for name in _read_settings()},
        **{_digest_variable(kind): spec_digest(part.spec) for kind, part in wanted(plan).items()},
    }


def env_file(values: Mapping[str, str]) -> str:
    """Return values as the text of an ``--env-file``.

    Raises:
        ConfigError: a value that such a file can't hold.
    """
    for name, value in values.items():
        if "'" in value or "\n" in value:
            raise ConfigError(
                f"{name} is {value!r}: an env file of compose can't hold a quote or a line break.",
                next_step="Choose another path, or use `school up` instead of compose.",
            )
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def prepare(engine: Engine, home: Home, settings: Settings, say: Callable[[str], None]) -> dict[str, str]:
    """Make what compose needs (images, folders, key files) and return the values of the placeholders.

    Raises:
        SandboxError: the engine can't be used, or an image can't be made.
    """
    from orchestrator.sandbox.images import ensure_images  # noqa: PLC0415 - printing the file needs no builder

    images = ensure_images(engine, settings, ("service", "omniroute"), say)
    plan = PartsPlan(home, settings, images, "host" if engine.info().userns_remap else "")
    plan.prepare()
    return environment(plan)


def service(spec: ContainerSpec) -> dict[str, Any]:
    """Return a spec as a compose service; what is not set is left out."""
    found: dict[str, Any] = {
        "image": spec.image,
        "container_name": spec.name,
        "entrypoint": None if spec.entrypoint is None else list(spec.entrypoint),
        "command": list(spec.command),
        "environment": dict(spec.env),
        "labels": dict(spec.labels),
        "user": spec.user,
        "working_dir": spec.working_dir,
        "hostname": spec.hostname,
        **_network(spec),
        "volumes": [_volume(mount) for mount in spec.mounts],
        "tmpfs": [f"{target}:{options}" for target, options in spec.tmpfs.items()],
        "read_only": spec.read_only,
        "init": False,
        "cap_drop": list(spec.cap_drop),
        "cap_add": list(spec.cap_add),
        "security_opt": list(spec.security_opt),
        "userns_mode": spec.userns_mode,
        "runtime": spec.runtime,
        "pids_limit": spec.pids_limit,
        "mem_limit": spec.memory,
        "memswap_limit": spec.memory,
        "cpus": spec.cpus,
        "shm_size": spec.shm_size,
        "ulimits": {name: {"soft": value, "hard": value} for name, value in spec.ulimits.items()},
        "logging": {
            "driver": "json-file",
            "options": {"max-size": spec.log_max_size, "max-file": str(spec.log_max_files)},
        },
        "restart": spec.restart,
        "stop_grace_period": f"{spec.stop_timeout}s",
        "healthcheck": _healthcheck(spec.healthcheck),
    }
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _network(spec: ContainerSpec) -> dict[str, Any]:
    if spec.network == "none":
        return {"network_mode": "none"}
    ports = [
        {"target": port, "host_ip": host, "published": str(number), "protocol": "tcp"}
        for port, (host, number) in spec.publish.items()
    ]
    return {"networks": {NETWORK: {"aliases": list(spec.network_aliases)}}, "ports": ports}


def _volume(mount: Mount) -> dict[str, Any]:
    if mount.type == "volume":
        return {"type": "volume", "source": VOLUME, "target": mount.target, "read_only": mount.read_only}
    return {
        "type": "bind",
        "source": mount.source,
        "target": mount.target,
        "read_only": mount.read_only,
        "bind": {"create_host_path": False, "propagation": "rprivate"},
    }


def _healthcheck(check: Healthcheck | None) -> dict[str, Any]:
    if check is None:
        return {"disable": True}
    return {
        "test": list(check.test),
        "interval": f"{check.interval:g}s",
        "timeout": f"{check.timeout:g}s",
        "start_period": f"{check.start_period:g}s",
        "retries": check.retries,
    }


# -- placeholders ----------------------------------------------------------------------------------------------------


def _variable(setting: str) -> str:
    return f"SCHOOL_{setting.upper()}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _digest_variable(kind: Kind) -> str:
    return f"SCHOOL_SPEC_{kind.value.upper().replace('-', '_')}"


class _Recorder:
    """Stands for the settings and remembers which of them a spec read."""

    def __init__(self) -> None:
        self.read: dict[str, None] = {}

    def __getattr__(self, name: str) -> str:
        self.read[name] = None
        return f"${{{_variable(name)}:-{_text(Settings.model_fields[name].default)}}}"


def _any_plan(recorder: _Recorder) -> PartsPlan:
    home = _AnyHome(
        root=Path("${SCHOOL_HOME:?}"),
        bookbags=Path("${SCHOOL_BOOKBAG_DIR:?}"),
        signals=Path("${SCHOOL_SIGNAL_DIR:?}"),
        locks=Path("${SCHOOL_LOCK_DIR:?}"),
    )
    images = {"service": "${SCHOOL_SERVICE_IMAGE:?}", "omniroute": "${SCHOOL_OMNIROUTE_IMAGE:?}"}
    return PartsPlan(home, cast("Settings", recorder), images, "${SCHOOL_USERNS_MODE:-}")


def _read_settings() -> list[str]:
    """Return the settings that the specs are made from."""
    recorder = _Recorder()
    wanted(_any_plan(recorder))
    return list(recorder.read)


def _escaped(value: Any) -> Any:
    """Return a document in which a dollar sign that is no placeholder of ours stays one."""
    if isinstance(value, dict):
        return {key: _escaped(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_escaped(entry) for entry in value]
    return _PLACEHOLDER.sub("$$", value) if isinstance(value, str) else value


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: each service is read on its own."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's signature
        return True


def main(arguments: list[str]) -> int:
    """Print the compose file; with ``--env`` the values for the home in force."""
    if arguments not in ([], ["--env"]):
        print("usage: python -m orchestrator.sandbox.compose [--env]", file=sys.stderr)  # noqa: T201
        return 2
    if not arguments:
        sys.stdout.write(document())
        return 0
    from orchestrator.engine.connect import connect  # noqa: PLC0415
    from orchestrator.settings import settings  # noqa: PLC0415

    engine = None
    try:
        engine = connect()
        home = settings().home().ensure()
        text = env_file(prepare(engine, home, settings(), lambda line: print(line, file=sys.stderr)))  # noqa: T201
    except SchoolError as error:
        print(f"school: {error.message}\n        {error.next_step}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    finally:
        if engine is not None:
            engine.close()
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
