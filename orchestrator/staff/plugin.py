"""What a staff plugin is (R-63)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orchestrator.staff.sandbox import StaffSandbox


class Trust(StrEnum):
    """How far a plugin is trusted. ``core`` ships with the school; others are trusted as far as a person grants."""

    CORE = "core"
    VERIFIED = "verified"
    COMMUNITY = "community"
    UNTRUSTED = "untrusted"

    @property
    def rank(self) -> int:
        """0 is the most trusted."""
        return list(Trust).index(self)


@dataclass(frozen=True, slots=True)
class StaffContext:
    """What a plugin is told. ``now`` is epoch seconds."""

    now: float
    archive_days: int = 90
    max_session_cycles: int = 10


@dataclass(frozen=True, slots=True)
class StaffResult:
    """What a plugin found, as sentences for a person."""

    findings: tuple[str, ...] = ()


class StaffPlugin(Protocol):
    """A plugin. Whatever it does goes through the sandbox; what it writes counts only if its run ends well."""

    name: str
    trust: Trust

    def health_check(self) -> str:
        """Return why the plugin can't run, or ""."""

    def run(self, sandbox: StaffSandbox, ctx: StaffContext) -> StaffResult:
        """Do one round."""
