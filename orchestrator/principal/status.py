"""What there is of the school: parts, beads, settings; and what is left of students (nothing, after a bead)."""

from __future__ import annotations

import re
from typing import Any

from orchestrator.engine.base import LABEL_HOME, LABEL_KIND, Kind
from orchestrator.engine.connect import connect
from orchestrator.engine.locate import locate
from orchestrator.errors import EngineError, UsageError
from orchestrator.gateway.gate_client import GateClient
from orchestrator.principal.ledger import Ledger
from orchestrator.sandbox import standing
from orchestrator.settings import decided_by, settings

_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*(?=@)")


def _shown(value: Any) -> Any:
    """Return a setting as it may be shown: a proxy's or a mail server's URL may hold a password."""
    return _PASSWORD.sub(r"\1:***", value) if isinstance(value, str) else value


def school_status() -> dict[str, Any]:
    """Return the state of the standing parts, the counts of beads, and the settings in force."""
    in_force = settings()
    home = in_force.home()
    made = (home.school / "home-id").exists()
    found: dict[str, Any] = {
        "home": str(home.root),
        "home_id": home.id if made else None,
        "engine": "not reachable",
        "parts": [],
        "running": 0,
        "ended": 0,
        "open_cleanup": 0,
        "settings": {name: _shown(value) for name, value in in_force.model_dump(mode="json").items()},
        "decided_by": decided_by(),
    }
    if made and home.ledger.exists():
        with Ledger(home.ledger) as ledger:
            rows = ledger.beads(limit=1_000_000)
        found["running"] = sum(row["status"] == "running" for row in rows)
        found["ended"] = sum(row["status"] == "ended" for row in rows)
        found["open_cleanup"] = sum(row["cleanup"] in {"pending", "failed"} for row in rows)
    try:
        located = locate()
        found["engine"] = str(located)
        engine = connect(located.endpoint)
    except EngineError as error:
        found["engine"] = f"not reachable: {error.message}"
        return found
    try:
        if made:
            found["parts"] = [
                {"kind": c.labels.get(LABEL_KIND), "state": c.state, "name": c.name, "image": c.image[:19]}
                for c in sorted(standing.parts(engine, home), key=lambda part: part.name)
            ]
    finally:
        engine.close()
    return found


def part_logs(kind: str) -> str:
    """Return the end of a standing part's output.

    Raises:
        UsageError: it is not there.
    """
    home = settings().home()
    engine = connect()
    try:
        found = [part for part in standing.parts(engine, home) if part.labels.get(LABEL_KIND) == kind]
        if not found:
            raise UsageError(f"There is no {kind} of the home {home.root}.", next_step="Bring the school up: school up")
        return engine.logs(found[0].id, tail=300).decode("utf-8", "replace")
    finally:
        engine.close()


def traces() -> dict[str, list[str]]:
    """Look for everything that a student may leave: containers, leaf folders, gate grants, leases."""
    home = settings().home()
    engine = connect()
    try:
        containers = [
            container.name
            for kind in (Kind.LEAF, Kind.VERIFY, Kind.PROBE)
            for container in engine.list({LABEL_HOME: home.id, LABEL_KIND: kind})
        ]
    finally:
        engine.close()
    grants = [str(grant["grant"]) for grant in GateClient(home).grants() if grant.get("kind") == "student"]
    return {
        "containers": containers,
        "worktrees, folders": sorted(path.name for path in home.leaves.iterdir()),
        "gate grants": grants,
        "sockets": sorted(p.name for p in (home.gate / "sockets").iterdir() if not p.name.startswith("teacher-")),
        "leases": sorted(path.name for path in home.leases.glob("bead-*.lock")),
    }
