"""Turns a ContainerSpec into the body of the Engine API's POST /containers/create, and its answers into our values.

Pure functions over JSON: no SDK types, so that every field that is sent stands here to be read.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import Container, ContainerSpec, Healthcheck, Image, Mount, State

if TYPE_CHECKING:
    from collections.abc import Mapping

_NANO = 1_000_000_000
_TEST_FORMS = ("CMD", "CMD-SHELL", "NONE")


def create_payload(spec: ContainerSpec) -> dict[str, Any]:
    """Return the JSON body that creates this container."""
    ports = {f"{port}/tcp": binding for port, binding in spec.publish.items()}
    payload: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "Labels": dict(spec.labels),
        "Tty": False,
        "OpenStdin": False,
        "StopTimeout": spec.stop_timeout,
        "Healthcheck": _healthcheck(spec.healthcheck),
        "HostConfig": _host_config(spec),
    }
    if spec.command:
        payload["Cmd"] = list(spec.command)
    if spec.entrypoint is not None:
        payload["Entrypoint"] = list(spec.entrypoint)
    if spec.working_dir:
        payload["WorkingDir"] = spec.working_dir
    if spec.user:
        payload["User"] = spec.user
    if spec.hostname:
        payload["Hostname"] = spec.hostname
    if ports:
        payload["ExposedPorts"] = {port: {} for port in ports}
    if spec.network != "none":
        endpoint = {"Aliases": list(spec.network_aliases)} if spec.network_aliases else {}
        payload["NetworkingConfig"] = {"EndpointsConfig": {spec.network: endpoint}}
    return payload


def _host_config(spec: ContainerSpec) -> dict[str, Any]:
    config: dict[str, Any] = {
        "NetworkMode": spec.network,
        "ReadonlyRootfs": spec.read_only,
        "Privileged": False,
        "Init": False,  # said aloud: a daemon may add its own init by default, and the entry must be PID 1
        "CapDrop": list(spec.cap_drop),
        "CapAdd": list(spec.cap_add),
        "SecurityOpt": list(spec.security_opt),
        "Mounts": [_mount(mount) for mount in spec.mounts],
        "Tmpfs": dict(spec.tmpfs),
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in spec.ulimits.items()],
        "LogConfig": {
            "Type": "json-file",
            "Config": {"max-size": spec.log_max_size, "max-file": str(spec.log_max_files)},
        },
        "AutoRemove": spec.auto_remove,
        "RestartPolicy": {"Name": spec.restart},
        "PortBindings": {
            f"{port}/tcp": [{"HostIp": host, "HostPort": str(number or "")}]
            for port, (host, number) in spec.publish.items()
        },
    }
    if spec.pids_limit is not None:
        config["PidsLimit"] = spec.pids_limit
    if spec.memory is not None:
        config["Memory"] = spec.memory
        config["MemorySwap"] = spec.memory
    if spec.cpus is not None:
        config["NanoCpus"] = int(spec.cpus * _NANO)
    if spec.runtime:
        config["Runtime"] = spec.runtime
    if spec.userns_mode:
        config["UsernsMode"] = spec.userns_mode
    if spec.shm_size is not None:
        config["ShmSize"] = spec.shm_size
    return config


def _mount(mount: Mount) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Type": mount.type,
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
    }
    if mount.type == "bind":
        entry["BindOptions"] = {"Propagation": "rprivate"}
    return entry


def _healthcheck(check: Healthcheck | None) -> dict[str, Any]:
    """Return the check; without one, an image's own is switched off: it would run foreign code on a timer."""
    if check is None:
        return {"Test": ["NONE"]}
    return {
        "Test": health_test(check),
        "Interval": int(check.interval * _NANO),
        "Timeout": int(check.timeout * _NANO),
        "StartPeriod": int(check.start_period * _NANO),
        "Retries": check.retries,
    }


def health_test(check: Healthcheck) -> list[str]:
    """Return the test in the API's form: argv with the word CMD before it, unless a form is already given."""
    test = list(check.test)
    return test if test and test[0] in _TEST_FORMS else ["CMD", *test]


def container_from(document: Mapping[str, Any]) -> Container:
    """Return our value for the JSON of GET /containers/{id}/json."""
    state = document["State"]
    status = State(state["Status"])
    ended = status in (State.EXITED, State.DEAD)
    bindings = document.get("NetworkSettings", {}).get("Ports") or {}
    return Container(
        id=document["Id"],
        name=document["Name"].removeprefix("/"),
        state=status,
        labels=document["Config"].get("Labels") or {},
        image=document["Image"],
        exit_code=state.get("ExitCode") if ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        health=_health((state.get("Health") or {}).get("Status", "")),
        ports=_ports(bindings),
        created=epoch(document["Created"]),
        pid=state.get("Pid") or 0,
        restarts=document.get("RestartCount") or 0,
    )


def _health(status: str) -> str:
    return "" if status == "none" else status


def _ports(bindings: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for port, hosts in bindings.items():
        number, _, protocol = port.partition("/")
        if protocol == "tcp" and hosts:
            found[int(number)] = (hosts[0]["HostIp"], int(hosts[0]["HostPort"]))
    return found


def image_from(document: Mapping[str, Any]) -> Image:
    """Return our value for the JSON of GET /images/{name}/json."""
    config = document.get("Config") or {}
    return Image(
        id=document["Id"],
        tags=tuple(document.get("RepoTags") or ()),
        labels=config.get("Labels") or {},
        size=document.get("Size") or 0,
        created=epoch(document.get("Created") or ""),
    )


def image_from_summary(document: Mapping[str, Any]) -> Image:
    """Return our value for one entry of GET /images/json."""
    tags = tuple(tag for tag in document.get("RepoTags") or () if tag != "<none>:<none>")
    return Image(
        id=document["Id"],
        tags=tags,
        labels=document.get("Labels") or {},
        size=document.get("Size") or 0,
        created=float(document.get("Created") or 0),
    )


def epoch(text: str) -> float:
    """Return epoch seconds of the engine's RFC 3339 time; 0.0 for an empty or the zero time."""
    if not text or text.startswith("0001-"):
        return 0.0
    return datetime.fromisoformat(text).timestamp()


def label_filters(labels: Mapping[str, str]) -> list[str]:
    """Return labels as the API's filter values; an empty value asks for the label alone."""
    return [f"{name}={value}" if value else name for name, value in labels.items()]


def filters_json(filters: Mapping[str, list[str]]) -> str:
    """Return filters as the API wants them in a query."""
    return json.dumps(filters)
