"""Compares one container's life through the engine with the same calls made by hand (`python tests/bench/engine_overhead.py IMAGE`).

Raw: the SDK's create, start, wait, remove. Ours: create, watch, start, lines, wait, close, remove (looked for
again after the removal). Same hardened spec without a network; the two alternate, so that a busy machine is busy for both.
"""

from __future__ import annotations

import secrets
import statistics
import sys
import time

import docker

from orchestrator.engine.base import LABEL_HOME, ContainerSpec
from orchestrator.engine.connect import connect
from orchestrator.engine.docker_spec import create_payload


def main(image: str, rounds: int = 15) -> None:
    engine = connect()
    client = docker.APIClient(base_url=engine.info().endpoint, version="1.41")
    home = f"bench-{secrets.token_hex(6)}"

    def spec() -> ContainerSpec:
        name = f"school-{home}-{secrets.token_hex(4)}"
        limits = {"memory": 256 << 20, "pids_limit": 64, "cpus": 1.0}
        return ContainerSpec(
            image=image, name=name, entrypoint=("sh", "-c", "echo hi"), labels={LABEL_HOME: home}, **limits
        )

    def raw() -> None:
        made = spec()
        container = client.create_container_from_config(create_payload(made), made.name)["Id"]
        client.start(container)
        client.wait(container)
        client.remove_container(container, v=True, force=True)

    def ours() -> None:
        container = engine.create(spec())
        watch = engine.watch(container)
        engine.start(container)
        lines = list(watch.lines())
        watch.wait()
        watch.close()
        engine.remove(container)
        assert lines == [b"hi"]

    times: dict[str, list[float]] = {"raw": [], "ours": []}
    for _ in range(rounds):
        for name, life in (("raw", raw), ("ours", ours)):
            began = time.perf_counter()
            life()
            times[name].append((time.perf_counter() - began) * 1000)
    client.close()
    engine.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"raw {medians['raw']:.0f} ms, ours {medians['ours']:.0f} ms, ratio {medians['ours'] / medians['raw']:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
