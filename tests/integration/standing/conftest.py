"""A home of its own and a part that is a shell script, on the real engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, Container, ContainerSpec, Engine, Healthcheck, Kind
from orchestrator.engine.connect import connect
from orchestrator.home import Home
from orchestrator.sandbox.images import ensure_images
from orchestrator.sandbox.standing import PartSpec, ensure
from orchestrator.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@dataclass
class Stand:
    """What the tests bring up."""

    engine: Engine
    home: Home
    image: str

    @property
    def name(self) -> str:
        return f"school-{self.home.id}-gate"

    @property
    def labels(self) -> dict[str, str]:
        return {LABEL_HOME: self.home.id, LABEL_KIND: Kind.GATE.value}

    def part(self, script: str = SLEEP, *, timeout: float = 10.0, **fields: Any) -> PartSpec:
        spec = ContainerSpec(
            image=self.image, name=self.name, entrypoint=("sh", "-c", script), tmpfs={"/tmp": ""}, **fields
        )
        return PartSpec(Kind.GATE, spec, needs_health=spec.healthcheck is not None, timeout=timeout)

    def healthy(self, test: str, script: str = SLEEP, *, interval: float = 30, timeout: float = 10) -> PartSpec:
        check = Healthcheck(("sh", "-c", test), interval=interval, start_period=0, retries=1)
        return self.part(script, timeout=timeout, healthcheck=check)

    def up(self, part: PartSpec | None = None, *, idle: bool = True) -> Container:
        return ensure(self.engine, self.home, part or self.part(), idle=lambda: idle)

    def all(self) -> list[Container]:
        return list(self.engine.list(self.labels))

    def by_hand(self, name: str, **fields: Any) -> str:
        """Start a container the way a person would, past ensure()."""
        base: dict[str, Any] = {"image": self.image, "entrypoint": ("sh", "-c", SLEEP), "labels": self.labels}
        container = self.engine.create(ContainerSpec(name=name, **(base | fields)))
        self.engine.start(container)
        return container


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    root = tmp_path / "home"
    home = Home(root, root / "bookbag", root / "signals", root / "locks").ensure()
    engine = connect()
    try:
        existing = [tag for image in engine.images({}) for tag in image.tags if tag.startswith("school/base:")]
        image = existing[0] if existing else ensure_images(engine, load_settings(), ["base"], print)["base"]
        yield Stand(engine, home, image)
    finally:
        for container in engine.list({LABEL_HOME: ""}):
            if container.labels[LABEL_HOME] in (home.id, f"{home.id}-other"):
                engine.remove(container.id)
        engine.close()
