"""OmniRoute, rehearsal and the gate, real, on a network of their own, for all tests of this folder."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_HOME, Kind
from orchestrator.gateway.config import load_config
from orchestrator.gateway.configure import configure
from orchestrator.gateway.gate_client import GateClient
from orchestrator.gateway.omniroute import OmniRoute
from orchestrator.home import Home
from orchestrator.sandbox.parts import PartsPlan, labels, network_name, volume_name
from orchestrator.sandbox.standing import ensure
from orchestrator.settings import load_settings

SHIPPED = Path(__file__).parents[3] / "config" / "gateway.yaml"


@dataclass
class Parts:
    home: Home
    engine: object
    omniroute: OmniRoute
    gate: GateClient
    changes: list

    def config(self):
        return load_config(SHIPPED, self.home)


@pytest.fixture(scope="session")
def parts(engine, image):
    with tempfile.TemporaryDirectory(prefix="school-gateway-") as folder:
        root = Path(folder) / "home"
        home = Home(root, root / "bookbag", root / "signals", root / "locks").ensure()
        plan = PartsPlan(
            home, load_settings(school_home=root), {name: image(name) for name in ("service", "omniroute")}
        )
        plan.prepare()
        Path(folder).chmod(0o711)  # the containers' uid has to come through
        engine.ensure_network(network_name(home), labels=labels(home))
        engine.ensure_volume(volume_name(home), labels=labels(home))
        try:
            for part in (plan.omniroute(), plan.rehearsal(), plan.gate()):
                ensure(engine, home, part, idle=lambda: True)
            container = engine.list({LABEL_HOME: home.id, "school.kind": Kind.OMNIROUTE})[0]
            host, port = container.ports[20128]
            password = (home.keys / "omniroute" / "admin_password").read_text().strip()
            omniroute = OmniRoute(f"http://{host}:{port}", password)
            omniroute.wait_healthy(90)
            changes = []
            configure(omniroute, load_config(SHIPPED, home), say=changes.append)
            yield Parts(home, engine, omniroute, GateClient(home), changes)
            omniroute.close()
        finally:
            for container in engine.list({LABEL_HOME: home.id}):
                engine.remove(container.id)
            engine.remove_volume(volume_name(home))
            engine.remove_network(network_name(home))
