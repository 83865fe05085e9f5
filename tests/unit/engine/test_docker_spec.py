"""The body that creates a container: what is sent, field by field."""

from __future__ import annotations

from orchestrator.engine.base import ContainerSpec, Healthcheck, Mount, State
from orchestrator.engine.docker_spec import container_from, create_payload, epoch, label_filters


def test_a_bare_spec_is_hardened() -> None:
    host = create_payload(ContainerSpec(image="i", name="n"))["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["Init"] is False  # the entry point is PID 1, whatever the daemon's default


def test_memory_never_gets_swap_on_top() -> None:
    host = create_payload(ContainerSpec(image="i", name="n", memory=64, cpus=0.5, pids_limit=9))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 64
    assert host["NanoCpus"] == 500_000_000
    assert host["PidsLimit"] == 9


def test_mounts_go_through_the_mounts_api_and_never_through_binds() -> None:
    spec = ContainerSpec(
        image="i", name="n", mounts=(Mount("/a", "/b", read_only=True), Mount("v", "/data", type="volume"))
    )
    host = create_payload(spec)["HostConfig"]
    assert "Binds" not in host
    assert [(m["Type"], m["Source"], m["Target"], m["ReadOnly"]) for m in host["Mounts"]] == [
        ("bind", "/a", "/b", True),
        ("volume", "v", "/data", False),
    ]


def test_an_images_own_health_check_is_switched_off() -> None:
    assert create_payload(ContainerSpec(image="i", name="n"))["Healthcheck"] == {"Test": ["NONE"]}


def test_a_health_check_is_argv_in_nanoseconds() -> None:
    for test in (("check", "it"), ("CMD", "check", "it")):
        spec = ContainerSpec(image="i", name="n", healthcheck=Healthcheck(test, interval=0.5))
        sent = create_payload(spec)["Healthcheck"]
        assert sent["Test"] == ["CMD", "check", "it"]
        assert sent["Interval"] == 500_000_000


def test_a_port_without_a_number_is_left_to_the_engine() -> None:
    spec = ContainerSpec(image="i", name="n", network="x", publish={80: ("127.0.0.1", 0)})
    payload = create_payload(spec)
    assert payload["HostConfig"]["PortBindings"] == {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
    assert payload["ExposedPorts"] == {"80/tcp": {}}


def test_a_running_container_has_no_exit_code() -> None:
    document = {
        "Id": "abc",
        "Name": "/n",
        "Created": "2026-11-30T18:39:13.123456789Z",
        "Image": "sha256:1",
        "RestartCount": 2,
        "Config": {"Labels": None},
        "State": {"Status": "running", "ExitCode": 0, "OOMKilled": False, "Pid": 7, "Health": {"Status": "starting"}},
        "NetworkSettings": {
            "Ports": {
                "80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "49153"}],
                "53/udp": [{"HostIp": "", "HostPort": "1"}],
                "81/tcp": None,
            }
        },
    }
    container = container_from(document)
    assert (container.name, container.state, container.exit_code) == ("n", State.RUNNING, None)
    assert (container.health, container.restarts, container.pid) == ("starting", 2, 7)
    assert container.ports == {80: ("127.0.0.1", 49153)}
    assert container.labels == {}


def test_the_engines_times_become_epoch_seconds() -> None:
    assert epoch("1970-01-01T00:01:40.5Z") == 100.5
    assert epoch("1970-01-01T01:01:40.123456789+01:00") == 100.123456
    assert epoch("0001-01-01T00:00:00Z") == 0.0


def test_an_empty_label_value_asks_for_the_name_alone() -> None:
    assert label_filters({"a": "1", "b": ""}) == ["a=1", "b"]
