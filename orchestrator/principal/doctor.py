"""``school doctor``: everything the school needs, one check each, with the next step where something is not well.

A check never raises and never repairs. ``fail`` is what stops a spawn or breaks a promise; ``warn`` is what a person
should know. The engine comes first: what can't be asked without it is then left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import requests

from orchestrator.engine.base import LABEL_KIND, Kind, State
from orchestrator.engine.connect import connect
from orchestrator.engine.locate import locate
from orchestrator.errors import EngineError, GatewayError, GitError, LedgerError, SandboxError, SchoolError
from orchestrator.gateway.gate_client import GateClient
from orchestrator.git.run import git
from orchestrator.principal.bring_up import gateway_of
from orchestrator.principal.janitor import lock_path
from orchestrator.principal.lease import bead_lease_path, held
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.probe import probe_folders
from orchestrator.principal.recovery import orphans, strangers
from orchestrator.sandbox import standing
from orchestrator.sandbox.images import ALL, image_builder, known_image
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.engine.base import Container, Engine, EngineInfo
    from orchestrator.home import Home
    from orchestrator.settings import Settings

OK, WARN, FAIL = "ok", "warn", "fail"

GIT_NEEDED = (2, 31)
"""What worktree and fast-import options in use need; tried from 2.39 on."""

DISK_WARN, DISK_FAIL = 5 << 30, 1 << 30
CLOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One point. ``next_step`` is empty when nothing is to be done."""

    name: str
    status: str
    detail: str
    next_step: str = ""

    def to_json(self) -> dict[str, str]:
        """Return it as JSON."""
        return asdict(self)


def examine() -> Iterator[Check]:
    """Make all checks, cheap ones first."""
    in_force = settings()
    home = in_force.home().ensure()
    yield _git()
    yield _disk("disk home", str(home.root))
    yield _ledger(home)
    try:
        located = locate()
        engine = connect(located.endpoint)
        info = engine.info()
    except SchoolError as error:
        yield Check("engine", FAIL, error.message, error.next_step or "Start a container engine: school up offers to.")
        return
    try:
        yield Check("engine", OK, f"{info.product} {info.version} (API {info.api_version}) at {located}")
        yield from _engine(info)
        for check in (_images, _folders, _parts, _gateway, _gate, _clock, _leaks, _strangers):
            yield _guarded(check, engine, home, in_force)
    finally:
        engine.close()


def _guarded(check: Callable[[Engine, Home, Settings], Check], engine: Engine, home: Home, in_force: Settings) -> Check:
    try:
        return check(engine, home, in_force)
    except SchoolError as error:
        return Check(check.__name__.strip("_"), FAIL, error.message, error.next_step or "school up")


# -- without an engine -------------------------------------------------------------------------------------------------


def _git() -> Check:
    try:
        text = git("--version", cwd=None).stdout.decode(errors="replace").strip()
    except (GitError, OSError) as error:
        return Check("git", FAIL, f"git can't be run: {error}", "Install git 2.31 or newer.")
    numbers = [int(part) for part in text.split()[2].split(".")[:2] if part.isdigit()]
    if tuple(numbers) < GIT_NEEDED:
        return Check("git", FAIL, f"{text} is too old", "Install git 2.31 or newer.")
    return Check("git", OK, text)


def _disk(name: str, path: str) -> Check:
    free = shutil.disk_usage(path).free
    detail = f"{free / (1 << 30):.1f} GiB free at {path}"
    step = "Make room: school gc --apply, then docker system df shows what else there is."
    if free < DISK_FAIL:
        return Check(name, FAIL, detail, step)
    return Check(name, WARN if free < DISK_WARN else OK, detail, step if free < DISK_WARN else "")


def _ledger(home: Home) -> Check:
    try:
        with Ledger(home.ledger) as ledger:
            count = len(ledger.beads(limit=1_000_000))
    except LedgerError as error:
        return Check("ledger", FAIL, error.message, error.next_step)
    return Check("ledger", OK, f"{count} beads in {home.ledger}")


# -- the engine --------------------------------------------------------------------------------------------------------


def _engine(info: EngineInfo) -> Iterator[Check]:
    kinds = ", ".join(text for text, here in (("rootless", info.rootless), ("userns-remap", info.userns_remap)) if here)
    yield Check("users", OK, kinds or "rootful, no user namespace remapping (leaves run unprivileged all the same)")
    if info.cgroup_version == "1":
        text = "cgroup v1: limits hold; current systems have v2"
        yield Check("cgroup", OK, text)
    else:
        yield Check("cgroup", OK, f"cgroup v{info.cgroup_version}")
    if os.path.isdir(info.root_dir):  # noqa: PTH112 - a string from the engine; a remote engine's folder is not here
        yield _disk("disk engine", info.root_dir)


def _images(engine: Engine, _home: Home, in_force: Settings) -> Check:
    builder = image_builder(engine, in_force, lambda _line: None)
    missing = [name for name in ALL if known_image(builder, in_force, name) is None]
    if missing:
        return Check("images", WARN, f"not built, or not current: {', '.join(missing)}", "school up builds them.")
    return Check("images", OK, f"{', '.join(ALL)} are current")


def _folders(engine: Engine, home: Home, in_force: Settings) -> Check:
    image = known_image(image_builder(engine, in_force, lambda _line: None), in_force, "service")
    if image is None:
        return Check("folders", WARN, "not tried: its image is not built", "school up")
    try:
        probe_folders(engine, home, image, "host" if engine.info().userns_remap else "")
    except SandboxError as error:
        return Check("folders", FAIL, error.message, error.next_step)
    return Check("folders", OK, f"the engine sees {home.root}, and sockets work in it")


# -- the school --------------------------------------------------------------------------------------------------------


def _parts(engine: Engine, home: Home, _in_force: Settings) -> Check:
    found = standing.parts(engine, home)
    kinds = [str(container.labels[LABEL_KIND]) for container in found]
    wanted = {str(kind) for kind in standing.STANDING}
    problems = [f"{kind} is missing" for kind in sorted(wanted - set(kinds))]
    problems += [f"{kinds.count(kind)} of {kind}" for kind in sorted(set(kinds)) if kinds.count(kind) > 1]
    for container in found:
        if container.state is not State.RUNNING or container.health == "unhealthy":
            problems.append(f"{container.name} is {container.health or container.state}")
    if problems:
        return Check("parts", FAIL, "; ".join(problems), "school up repairs them.")
    return Check("parts", OK, f"{', '.join(sorted(kinds))} run, one of each")


def _gateway(engine: Engine, home: Home, _in_force: Settings) -> Check:
    with contextlib.closing(gateway_of(engine, home)) as gateway:
        gateway.prove_auth()
        return Check("gateway", OK, f"OmniRoute at {gateway.url} keeps out what it must")


def _gate(_engine: Engine, home: Home, _in_force: Settings) -> Check:
    gate = GateClient(home)
    gate.health()
    grants = gate.grants()
    students = sum(grant.get("kind") == "student" for grant in grants)
    return Check("gate", OK, f"answers; {students} students' and {len(grants) - students} other grants")


def _clock(engine: Engine, home: Home, _in_force: Settings) -> Check:
    """A leaf's deadline is an hour on two clocks: the principal's, and that of the engine's machine."""
    with contextlib.closing(gateway_of(engine, home)) as gateway:
        try:
            before = time.time()
            with requests.Session() as session:
                session.trust_env = False  # it is on this machine: no proxy of the environment
                answer = session.get(f"{gateway.url}/api/monitoring/health", timeout=(5, 10))
            there = parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (requests.RequestException, KeyError, ValueError) as error:
            return Check("clock", WARN, f"the engine's clock can't be asked: {type(error).__name__}", "school up")
    off = there - before
    if abs(off) > CLOCK_SECONDS:
        return Check("clock", FAIL, f"the engine's clock is off by {off:+.0f} s", "Synchronise both machines' clocks.")
    return Check("clock", OK, "the engine's clock agrees")


def _leaks(engine: Engine, home: Home, in_force: Settings) -> Check:
    with Ledger(home.ledger) as ledger:
        left = [f"{orphan.what} {orphan.name}" for orphan in orphans(home, engine, ledger)]
        open_rows = ledger.beads(running=True)
    alone = [row["bead"] for row in open_rows if not held(bead_lease_path(home.leases, row["bead"]))]
    guarded = held(lock_path(home.leases))
    if left:
        return Check("left over", WARN, ", ".join(left), "school gc --apply")
    if alone and not (guarded and in_force.janitor):
        return Check("left over", WARN, f"nobody drives {', '.join(alone)}", "school resume")
    running = f"{len(open_rows)} open beads" + (", the janitor guards them" if guarded else "")
    return Check("left over", OK, f"nothing; {running}")


def _strangers(engine: Engine, home: Home, _in_force: Settings) -> Check:
    found = strangers(home, engine)
    if not found:
        return Check("strangers", OK, "no overdue student of another home on this engine")
    names = ", ".join(describe_stranger(container) for container in found)
    ids = " ".join(container.id[:12] for container in found)
    return Check("strangers", WARN, f"not provably ours, so they stay: {names}", f"docker rm -f {ids}")


def describe_stranger(container: Container) -> str:
    """Return a container that is not provably this home's, in words."""
    kind = container.labels.get(LABEL_KIND, Kind.LEAF)
    return f"{container.name} ({kind} of home {container.labels.get('school.home') or 'unknown'})"


def stranger_rows(engine: Engine, home: Home) -> list[dict[str, Any]]:
    """Return the strangers for ``school ps``, each with the command that removes it by hand; none without an engine."""
    try:
        found = strangers(home, engine)
    except (EngineError, GatewayError):
        return []
    return [{"name": c.name, "what": describe_stranger(c), "remove": f"docker rm -f {c.id[:12]}"} for c in found]
