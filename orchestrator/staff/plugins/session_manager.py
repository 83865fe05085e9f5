"""Session manager: whether each teacher lives, what its sessions take, and corrupt ones that are old enough to go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from orchestrator.staff.plugin import StaffResult, Trust

if TYPE_CHECKING:
    from orchestrator.staff.plugin import StaffContext
    from orchestrator.staff.sandbox import StaffSandbox

DAY = 86_400.0
STALE_BEAT = 60.0  # seconds


class SessionManager:
    """See the module."""

    name = "session_manager"
    trust = Trust.CORE

    def health_check(self) -> str:
        """Nothing is needed."""
        return ""

    def run(self, sandbox: StaffSandbox, ctx: StaffContext) -> StaffResult:
        """Look at both teachers."""
        findings: list[str] = []
        for teacher in ("cto", "coo"):
            findings += self._teacher(sandbox, ctx, teacher)
        return StaffResult(tuple(findings))

    def _teacher(self, sandbox: StaffSandbox, ctx: StaffContext, teacher: str) -> list[str]:
        area = f"sessions/{teacher}"
        found = dict(sandbox.names(area))
        findings = []
        if "heartbeat.json" not in found:
            if found:
                findings.append(f"teacher-{teacher} has a session and no heartbeat")
        elif found["heartbeat.json"] > STALE_BEAT:
            findings.append(f"teacher-{teacher} was last alive {found['heartbeat.json'] / 60:.0f} min ago")
        elif _drifting(sandbox.read(area, "heartbeat.json")):
            findings.append(f"teacher-{teacher} drifts: it passes nearly everything")
        for name, age in found.items():
            if name.endswith(".corrupt"):
                if age > ctx.archive_days * DAY:
                    sandbox.remove(area, name)
                else:
                    findings.append(f"teacher-{teacher} had to start afresh {age / DAY:.0f} days ago: {name}")
        kept = sorted(name for name, _ in sandbox.names(f"consolidated/{teacher}") if not name.startswith("."))
        for name in kept[: -ctx.max_session_cycles]:  # the teacher prunes its own; this is for one that is gone
            if found.get("heartbeat.json", STALE_BEAT + 1) > STALE_BEAT:
                sandbox.remove(f"consolidated/{teacher}", name)
        return findings


def _drifting(raw: bytes | None) -> bool:
    try:
        state = json.loads(raw or b"{}")
    except ValueError:
        return False
    return isinstance(state, dict) and state.get("drifting") is True
