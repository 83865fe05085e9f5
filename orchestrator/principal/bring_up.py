"""Bringing the school up: engine, images, network, standing parts, gateway's configuration, teachers' grants, probes.

Everything is idempotent. What is up already is only looked at, so a second `make up` takes as long as looking does;
what is missing is made side by side where one thing does not need the other.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator import resources
from orchestrator.engine.base import LABEL_KIND, LABEL_SPEC, Kind, State
from orchestrator.engine.connect import connect
from orchestrator.engine.provision import ensure_engine
from orchestrator.errors import GatewayUnavailableError, PartUnhealthyError
from orchestrator.gateway.config import GatewayConfig, load_config
from orchestrator.gateway.configure import configure
from orchestrator.gateway.gate_client import GateClient
from orchestrator.gateway.grants import Keys, ensure_grant
from orchestrator.gateway.omniroute import OmniRoute
from orchestrator.gateway.upstream import ensure_reachable, foreign_keys, foreign_omniroute, gate_upstream
from orchestrator.principal.lease import slot
from orchestrator.principal.probe import probe_folders
from orchestrator.principal.take_down import running_beads
from orchestrator.sandbox import parts, standing
from orchestrator.sandbox.images import ensure_images
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.engine.base import Container, Engine
    from orchestrator.home import Home
    from orchestrator.sandbox.standing import PartSpec
    from orchestrator.settings import Settings

GATE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Parts:
    """The wanted parts of a home, each as a spec."""

    plan: parts.PartsPlan
    gateway: GatewayConfig

    def wanted(self) -> dict[Kind, PartSpec]:
        """Return every part's spec; OmniRoute's own only while the user does not name another."""
        plan = self.plan
        found = [plan.rehearsal(), plan.gate(gate_upstream(self.gateway))]
        found += [plan.teacher(teacher) for teacher in parts.TEACHERS]
        if self.gateway.url is None:
            found.append(plan.omniroute())
        return {part.kind: part for part in found}


def bring_up(say: Callable[[str], None], *, confirm: Callable[[str], bool] | None = None) -> dict[str, Any]:
    """Bring everything up and return what stands: ``parts`` (kind, state, detail) and ``notes``.

    Raises:
        SchoolError: something could not be brought up; the message says what and what to do.
    """
    started = time.monotonic()
    in_force = settings()
    home = in_force.home().ensure()
    located = ensure_engine(home.root, say, confirm)
    engine = connect(located.endpoint)
    try:
        info = engine.info()
        say(f"engine {info.product} {info.version} at {located}")
        images = ensure_images(engine, in_force, ("service", "student", "omniroute"), say)
        userns = "host" if info.userns_remap else ""
        ensure_parts(engine, home, in_force, say, images=images, userns_mode=userns)
        probe_folders(engine, home, images["service"], userns)
        with keys_of(engine, home) as keys:
            if isinstance(keys, OmniRoute):
                keys.prove_auth()
            states = _states(engine, home)
    finally:
        engine.close()
    notes = []
    if not gateway_config(home).real:
        notes.append("no real model yet: every alias is answered by the rehearsal script (school gateway add …)")
    say(f"up in {time.monotonic() - started:.1f} s")
    return {"home": str(home.root), "engine": str(located), "parts": states, "notes": notes}


def ensure_parts(
    engine: Engine,
    home: Home,
    in_force: Settings,
    say: Callable[[str], None],
    *,
    images: Mapping[str, str] | None = None,
    userns_mode: str | None = None,
) -> str:
    """See that all standing parts run as they should, and return the user namespace mode for leaves.

    Raises:
        SandboxError: a part can't be made or does not become healthy.
        GatewayError: OmniRoute can't be configured, or lets in what it must not.
    """
    if userns_mode is None:
        userns_mode = "host" if engine.info().userns_remap else ""
    if images is None:
        images = ensure_images(engine, in_force, ("service", "omniroute"), say)
    plan = parts.PartsPlan(home, in_force, images, userns_mode)
    config = gateway_config(home)
    wanted = Parts(plan, config).wanted()
    if _all_run(engine, home, wanted):
        return userns_mode
    # one at a time: parts and network are safe under a race, the gateway's configuration is not
    with slot(home.leases, "up", 1, on_wait=lambda: say("waiting: another process is bringing the school up")):
        if not _all_run(engine, home, wanted):
            _bring_missing(engine, home, in_force, say, plan, config)
    return userns_mode


def _bring_missing(
    engine: Engine,
    home: Home,
    in_force: Settings,
    say: Callable[[str], None],
    plan: parts.PartsPlan,
    config: GatewayConfig,
) -> None:
    """Make what is missing, and configure the gateway."""
    wanted = Parts(plan, config).wanted()
    _brought_up(home).unlink(missing_ok=True)
    plan.prepare()
    ensure_reachable(home, config)
    for container in standing.parts(engine, home):
        if container.labels.get(LABEL_KIND) not in wanted:  # the own OmniRoute, once another is in use
            engine.remove(container.id)
    engine.ensure_network(parts.network_name(home), labels=parts.labels(home))
    engine.ensure_volume(parts.volume_name(home), labels=parts.labels(home))

    def idle() -> bool:
        return not running_beads(home)

    def ensure(kind: Kind) -> Container:
        say(f"{kind}: starting")
        container = standing.ensure(engine, home, wanted[kind], idle=idle)
        say(f"{kind}: {container.state}")
        return container

    with ThreadPoolExecutor(max_workers=3, thread_name_prefix="part") as pool:
        first = [kind for kind in (Kind.OMNIROUTE, Kind.REHEARSAL, Kind.GATE) if kind in wanted]
        for done in [pool.submit(ensure, kind) for kind in first]:
            done.result()
    with keys_of(engine, home) as keys:
        configure_gateway(home, in_force, keys, say)
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="part") as pool:
        for done in [pool.submit(ensure, parts.teacher_kind(t)) for t in parts.TEACHERS]:
            done.result()
    _brought_up(home).write_text(_ids(standing.parts(engine, home)), encoding="ascii")


def configure_gateway(home: Home, in_force: Settings, keys: Keys, say: Callable[[str], None]) -> None:
    """Apply the gateway's configuration, prove its doors, and give each teacher its key and socket.

    An OmniRoute of the user's own is not configured: it is theirs. Its doors are proven all the same.

    Raises:
        ConfigError: a provider's key is not at hand, or the review alias has no model.
        GatewayError: OmniRoute or the gate refused, or lets in what it must not.
    """
    config = gateway_config(home)
    if isinstance(keys, OmniRoute):
        keys.wait_healthy(timeout=60.0 if config.url is None else 10.0)  # the user's own is up, or it is not
        if config.url is None:
            configure(keys, config, say=say)
        keys.prove_auth()
    gate = GateClient(home)
    _wait_for_gate(gate)
    for teacher in parts.TEACHERS:
        name = parts.teacher_grant(teacher)
        ensure_grant(home, keys, gate, config, name, models=[in_force.review_model])


def gateway_config(home: Home) -> GatewayConfig:
    """Return the providers and aliases of a home: the shipped file and the home's own."""
    return load_config(resources.share("config") / "gateway.yaml", home)


@contextlib.contextmanager
def keys_of(engine: Engine, home: Home) -> Iterator[Keys]:
    """Give where keys come from: the home's OmniRoute, the user's own, or one shared key of the user's.

    Raises:
        PartUnhealthyError: the home's OmniRoute does not run.
        ConfigError: the file with the user's password or key can't be read.
    """
    config = gateway_config(home)
    omniroute = gateway_of(engine, home) if config.url is None else foreign_omniroute(config)
    try:
        yield omniroute if config.url is None and omniroute is not None else foreign_keys(config, omniroute)
    finally:
        if omniroute is not None:
            omniroute.close()


def gateway_of(engine: Engine, home: Home) -> OmniRoute:
    """Return a client for the home's OmniRoute, at the port that the engine gave it.

    Raises:
        PartUnhealthyError: it does not run.
    """
    for container in standing.parts(engine, home):
        if container.labels.get(LABEL_KIND) == Kind.OMNIROUTE and container.state is State.RUNNING:
            host, port = container.ports[20128]
            password = (home.keys / "omniroute" / "admin_password").read_text(encoding="ascii").strip()
            session = home.keys / "omniroute-session.json"
            return OmniRoute(f"http://{host}:{port}", password, session_file=session)
    raise PartUnhealthyError("OmniRoute does not run.", next_step="Bring it up: school up")


def _all_run(engine: Engine, home: Home, wanted: Mapping[Kind, PartSpec]) -> bool:
    """Return whether exactly the wanted parts run, each as its spec says, and were configured since they were made.

    Parts that compose started run without that, and so do those of an earlier call that did not get to its end.
    """
    found = standing.parts(engine, home)
    running = {
        container.labels.get(LABEL_KIND): container.labels.get(LABEL_SPEC)
        for container in found
        if container.state is State.RUNNING and container.health != "unhealthy"
    }
    if len(found) != len(wanted) or running != {k: standing.spec_digest(part.spec) for k, part in wanted.items()}:
        return False
    path = _brought_up(home)
    return path.exists() and path.read_text(encoding="ascii", errors="replace") == _ids(found)


def _brought_up(home: Home) -> Path:
    """Return the file that names the containers which were brought all the way up."""
    return home.school / "brought-up"


def forget_brought_up(home: Home) -> None:
    """Let the next look find that the parts have to be configured again."""
    _brought_up(home).unlink(missing_ok=True)


def _ids(containers: Iterable[Container]) -> str:
    return "".join(f"{name}\n" for name in sorted(container.id for container in containers))


def _wait_for_gate(gate: GateClient) -> None:
    deadline = time.monotonic() + GATE_SECONDS
    while True:
        try:
            gate.health()
        except GatewayUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _states(engine: Engine, home: Home) -> list[dict[str, str]]:
    rows = []
    for container in standing.parts(engine, home):
        kind = container.labels.get(LABEL_KIND, "?")
        detail = container.name
        if kind == Kind.OMNIROUTE and 20128 in container.ports:
            host, port = container.ports[20128]
            detail += f"  http://{host}:{port}"
        rows.append({"kind": kind, "state": str(container.state), "detail": detail})
    return sorted(rows, key=lambda row: row["kind"])
