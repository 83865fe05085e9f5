"""One run of one plugin: health, sandbox, and then its effects or none of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import SchoolError
from orchestrator.staff.plugin import StaffResult, Trust
from orchestrator.staff.sandbox import PluginStopped, StaffSandbox

if TYPE_CHECKING:
    from orchestrator.staff.plugin import StaffContext, StaffPlugin
    from orchestrator.staff.records import Records

Status = Literal["ok", "unhealthy", "stopped", "failed"]


@dataclass(slots=True)
class StaffRun:
    """What came of a run. ``effects`` are carried out only when it is ok and not a dry run; ``proposals`` never are."""

    plugin: str
    trust: str
    dry_run: bool
    status: Status = "ok"
    reason: str = ""
    findings: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    proposals: list[dict[str, Any]] = field(default_factory=list)
    applied: bool = False
    reads: int = 0
    writes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return asdict(self)


def run_plugin(
    plugin: StaffPlugin, records: Records, ctx: StaffContext, *, granted: Trust | None = None, dry_run: bool = False
) -> StaffRun:
    """Run a plugin once.

    Args:
        plugin: The plugin.
        records: The school's records.
        ctx: What it is told.
        granted: The most that it is trusted; its own claim counts where that is less. None: its own claim.
        dry_run: Carry nothing out, and write nothing down.
    """
    trust = max(plugin.trust, granted or plugin.trust, key=lambda level: level.rank)
    sandbox = StaffSandbox(records, trust)
    run = StaffRun(plugin.name, str(trust), dry_run)
    result = StaffResult()
    try:
        run.reason = plugin.health_check()
        if run.reason:
            run.status = "unhealthy"
        else:
            result = plugin.run(sandbox, ctx)
    except PluginStopped:
        run.status, run.reason = "stopped", sandbox.stopped
    except Exception as error:  # noqa: BLE001 - a plugin may be anybody's: its fault ends its run and nothing else
        run.status, run.reason = "failed", f"{type(error).__name__}: {error!s:.300}"
    if sandbox.stopped and run.status != "unhealthy":  # also when it caught what stopped it
        run.status, run.reason = "stopped", sandbox.stopped
    run.reads, run.writes = sandbox.reads, sandbox.writes
    run.findings = [str(text)[:1000] for text in result.findings]
    if run.status == "ok":
        run.effects = sandbox.effects()
        run.proposals = [asdict(change) for change in sandbox.proposals()]
        if not dry_run:
            try:
                sandbox.commit(plugin.name)
                run.applied = True
            except (OSError, SchoolError) as error:
                run.status, run.reason = "failed", f"its effects could not all be carried out: {error}"
    if not dry_run and _is_news(run, records.last_run(plugin.name)):
        records.event("staff.run", **run.to_json())
    return run


def _is_news(run: StaffRun, before: dict[str, Any] | None) -> bool:
    """Return whether a run is worth a line in the ledger, which only grows: a scheduler makes thousands a year."""
    names = ("status", "reason", "findings", "effects", "proposals")
    said = {name: getattr(run, name) for name in names}
    if before is None:
        return said != {name: getattr(StaffRun(run.plugin, run.trust, dry_run=False), name) for name in names}
    return bool(run.effects) or said != {name: before.get(name) for name in names}
