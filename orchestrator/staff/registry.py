"""Which plugins there are: the four that ship, and allowed ones of the entry point group ``school.staff``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from orchestrator.errors import ConfigError
from orchestrator.staff.plugin import Trust
from orchestrator.staff.plugins.adversarial_reviewer import AdversarialReviewer
from orchestrator.staff.plugins.janitor import Janitor
from orchestrator.staff.plugins.score_auditor import ScoreAuditor
from orchestrator.staff.plugins.session_manager import SessionManager

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint

    from orchestrator.staff.plugin import StaffPlugin

GROUP = "school.staff"


def shipped_plugins() -> dict[str, StaffPlugin]:
    """Return the plugins that ship."""
    plugins: list[StaffPlugin] = [Janitor(), SessionManager(), ScoreAuditor(), AdversarialReviewer()]
    return {plugin.name: plugin for plugin in plugins}


def allowed_plugins(setting: str) -> dict[str, Trust]:
    """Read ``NAME:TRUST,NAME:TRUST``; without a trust a plugin is untrusted.

    Raises:
        ConfigError: an entry is none, or names more trust than can be given.
    """
    allowed: dict[str, Trust] = {}
    for entry in filter(None, (part.strip() for part in setting.split(","))):
        name, _, trust = entry.partition(":")
        try:
            level = Trust(trust or "untrusted")
        except ValueError:
            level = Trust.CORE
        if not name or level is Trust.CORE or name in shipped_plugins():
            raise ConfigError(
                f"SCHOOL_STAFF_PLUGINS holds {entry[:80]!r}.",
                next_step="Write NAME:verified, NAME:community or NAME:untrusted; a shipped name can't be taken.",
            )
        allowed[name] = level
    return allowed


def load_plugins(setting: str, *, found: Iterable[EntryPoint] | None = None) -> dict[str, tuple[StaffPlugin, Trust]]:
    """Return the plugins that may run, each with the most that it is trusted. Only allowed ones are imported.

    Raises:
        ConfigError: one that was allowed is not installed, or is no plugin.
    """
    plugins = {name: (plugin, plugin.trust) for name, plugin in shipped_plugins().items()}
    allowed = allowed_plugins(setting)
    if not allowed:
        return plugins
    known = {point.name: point for point in (entry_points(group=GROUP) if found is None else found)}
    for name, trust in allowed.items():
        if name not in known:
            raise ConfigError(
                f"There is no staff plugin {name!r}.",
                next_step=f"Install the package that brings it (entry point group {GROUP}), or take it off the list.",
            )
        try:
            plugin: StaffPlugin = known[name].load()()
            plugin.name = name
            claimed = Trust(plugin.trust)
        except Exception as error:
            raise ConfigError(f"The staff plugin {name!r} can't be loaded: {type(error).__name__}: {error}.") from error
        plugins[name] = (plugin, max(trust, claimed, key=lambda level: level.rank))
    return plugins
