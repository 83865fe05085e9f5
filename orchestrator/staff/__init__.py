"""Staff: small plugins that tend the school's own records (R-62, R-63). They judge no work and touch no leaf."""

from orchestrator.staff.plugin import StaffContext, StaffPlugin, StaffResult, Trust
from orchestrator.staff.registry import load_plugins, shipped_plugins
from orchestrator.staff.run import StaffRun, run_plugin
from orchestrator.staff.sandbox import LIMITS, ScoreChange, StaffSandbox
from orchestrator.staff.triage import Triage, classify_issue

__all__ = [
    "LIMITS",
    "ScoreChange",
    "StaffContext",
    "StaffPlugin",
    "StaffResult",
    "StaffRun",
    "StaffSandbox",
    "Triage",
    "Trust",
    "classify_issue",
    "load_plugins",
    "run_plugin",
    "shipped_plugins",
]
