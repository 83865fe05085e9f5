"""compose/school.yaml says what the specs say, and nothing else."""

import dataclasses
import os
import re
from pathlib import Path

import pytest
import yaml

from orchestrator.engine.base import LABEL_SPEC, ContainerSpec, Healthcheck, Mount
from orchestrator.errors import ConfigError
from orchestrator.home import Home
from orchestrator.sandbox import compose, parts
from orchestrator.sandbox.standing import STANDING, spec_digest
from orchestrator.settings import load_settings

FILE = Path(__file__).resolve().parents[3] / "compose" / "school.yaml"
IMAGES = {"service": "school/service:aaa", "omniroute": "school/omniroute:bbb"}


@pytest.fixture(params=["as by default", "changed"])
def plan(tmp_path, request):
    root = tmp_path / "a home"
    home = Home(root, tmp_path / "bags", root / "signals", root / "locks").ensure()
    if request.param == "changed":
        changed = {
            "review_model": "own/model",
            "review_attempts": 7,
            "default_poll_interval": 0.5,
            "omniroute_port": 4711,
        }
        return parts.PartsPlan(home, load_settings(**changed), IMAGES, "host")
    return parts.PartsPlan(home, load_settings(), IMAGES)


def resolved(values):
    """The file as compose reads it: placeholders filled, $$ turned back."""

    def fill(match):
        if match[0] == "$$":
            return "$"
        name, default = match[1], match[2]
        if name not in values:
            assert default is not None, f"{name} is not given"
            assert not default.startswith("?"), f"{name} is not given"
        return values.get(name) or (default or "-").removeprefix("-")

    pattern = re.compile(r"\$\$|\$\{(\w+)(?::([-?][^}]*))?\}")

    def walk(value):
        if isinstance(value, dict):
            return {key: walk(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [walk(entry) for entry in value]
        return pattern.sub(fill, value) if isinstance(value, str) else value

    return walk(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def read_back(project, service) -> ContainerSpec:
    """A service as the spec that it was made from."""
    entry = dict(service)
    assert entry.pop("init") is False
    assert entry.pop("memswap_limit") == entry["mem_limit"], "swap is never added"
    logging = entry.pop("logging")
    assert logging["driver"] == "json-file"
    mounts = []
    for volume in entry.pop("volumes"):
        if volume["type"] == "bind":
            assert volume["bind"] == {"create_host_path": False, "propagation": "rprivate"}
            source = volume["source"]
        else:
            source = project["volumes"][volume["source"]]["name"]
        mounts.append(Mount(source, volume["target"], volume["read_only"], volume["type"]))
    networks = entry.pop("networks", None)
    network, aliases = entry.pop("network_mode", None), ()
    if networks is not None:
        ((key, options),) = networks.items()
        network, aliases = project["networks"][key]["name"], tuple(options["aliases"])
    ports = {port["target"]: (port["host_ip"], int(port["published"])) for port in entry.pop("ports", [])}
    check = entry.pop("healthcheck")
    health = None
    if check != {"disable": True}:
        times = {name: seconds(check[name]) for name in ("interval", "timeout", "start_period")}
        health = Healthcheck(tuple(check["test"]), retries=check["retries"], **times)
    spec = ContainerSpec(
        image=entry.pop("image"),
        name=entry.pop("container_name"),
        entrypoint=tuple(entry.pop("entrypoint")) if "entrypoint" in entry else None,
        env=entry.pop("environment", {}),
        labels=entry.pop("labels"),
        mounts=tuple(mounts),
        tmpfs=dict(line.split(":", 1) for line in entry.pop("tmpfs")),
        user=entry.pop("user"),
        network=network,
        network_aliases=aliases,
        publish=ports,
        read_only=entry.pop("read_only"),
        cap_drop=tuple(entry.pop("cap_drop")),
        security_opt=tuple(entry.pop("security_opt")),
        pids_limit=entry.pop("pids_limit"),
        memory=entry.pop("mem_limit"),
        log_max_size=logging["options"]["max-size"],
        log_max_files=int(logging["options"]["max-file"]),
        restart=entry.pop("restart"),
        userns_mode=entry.pop("userns_mode"),
        stop_timeout=int(seconds(entry.pop("stop_grace_period"))),
        healthcheck=health,
    )
    assert entry == {}, "a key that no spec has"
    return spec


def test_the_file_is_what_the_specs_print():
    assert FILE.read_text(encoding="utf-8") == compose.document(), (
        "run: python -m orchestrator.sandbox.compose > compose/school.yaml"
    )


def test_the_file_is_the_same_whoever_prints_it(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setenv("SCHOOL_REVIEW_MODEL", "own/model")
    monkeypatch.setenv("SCHOOL_HOME", "/elsewhere")
    assert compose.document() == FILE.read_text(encoding="utf-8")


def test_with_a_home_s_values_it_is_exactly_the_specs_of_that_home(plan):
    project = resolved(compose.environment(plan))
    wanted = compose.wanted(plan)
    assert set(project["services"]) == {kind.value for kind in wanted} == {kind.value for kind in STANDING}
    for kind, part in wanted.items():
        labels = {**part.spec.labels, LABEL_SPEC: spec_digest(part.spec)}
        assert read_back(project, project["services"][kind.value]) == dataclasses.replace(part.spec, labels=labels)


def test_network_and_volume_are_the_home_s_own(plan):
    project = resolved(compose.environment(plan))
    ((_, network),) = project["networks"].items()
    ((_, volume),) = project["volumes"].items()
    assert (network["name"], network["labels"]) == (parts.network_name(plan.home), parts.labels(plan.home))
    assert (volume["name"], volume["labels"]) == (parts.volume_name(plan.home), parts.labels(plan.home))


def test_no_field_of_a_spec_is_lost():
    """A field that is added to ContainerSpec must reach the service, or be named here with its reason."""
    common = {"image": "i", "name": "n"}
    plain = compose.service(ContainerSpec(**common))
    other = {
        "image": "x",
        "name": "x",
        "command": ("c",),
        "entrypoint": ("e",),
        "env": {"A": "1"},
        "labels": {"l": "1"},
        "mounts": (Mount("/a", "/b"),),
        "tmpfs": {"/tmp": "rw"},
        "working_dir": "/w",
        "user": "1:1",
        "hostname": "h",
        "network": "net",
        "read_only": False,
        "cap_drop": ("CHOWN",),
        "cap_add": ("CHOWN",),
        "security_opt": ("a",),
        "pids_limit": 5,
        "memory": 5,
        "cpus": 1.5,
        "ulimits": {"core": 0},
        "log_max_size": "1m",
        "log_max_files": 3,
        "restart": "unless-stopped",
        "runtime": "runsc",
        "userns_mode": "host",
        "stop_timeout": 9,
        "healthcheck": Healthcheck(("CMD", "true")),
        "shm_size": 5,
    }
    lost = {name for name, value in other.items() if compose.service(ContainerSpec(**{**common, name: value})) == plain}
    assert lost == set()
    only_on_a_network = {"network_aliases", "publish"}  # read back above
    not_standing = {"auto_remove"}  # a part that removes itself would not stand
    assert {field.name for field in dataclasses.fields(ContainerSpec)} == set(other) | only_on_a_network | not_standing


def test_a_dollar_sign_of_a_value_stays_one():
    assert compose._escaped({"a": ["$HOME ${X} ${SCHOOL_HOME:?}"]}) == {"a": ["$$HOME $${X} ${SCHOOL_HOME:?}"]}


def test_the_env_file_quotes_and_refuses_what_it_can_t_hold():
    assert compose.env_file({"A": "/a b/$x", "B": ""}) == "A='/a b/$x'\nB=''\n"
    with pytest.raises(ConfigError, match="A is"):
        compose.env_file({"A": "it's"})


def test_an_unknown_argument_is_refused(capsys):
    assert compose.main(["--yaml"]) == 2
    assert capsys.readouterr().out == ""
