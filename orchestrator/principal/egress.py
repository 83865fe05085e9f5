"""Which places a bead may reach: what its repository asks for, as far as the user's own settings allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import ConfigError
from orchestrator.gate.place import valid_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.settings import Settings


def allowed_egress(asked: Sequence[str], settings: Settings) -> tuple[tuple[str, ...], list[str]]:
    """Return the places that are granted, and what there is to say about it.

    Raises:
        ConfigError: the user's list holds something that is no ``name:port``.
    """
    allowed = [place.strip() for place in settings.egress_allow.split(",") if place.strip()]
    for place in allowed:
        if not valid_place(place):
            raise ConfigError(
                f"SCHOOL_EGRESS_ALLOW holds {place[:80]!r}, which is no name:port.",
                next_step="Write each place as a name and a port, for example files.example.org:443.",
            )
    granted = tuple(place for place in dict.fromkeys(asked) if place in allowed)
    notes = []
    if granted:
        notes.append(f"the student can reach {', '.join(granted)}: what it can read, it can send there")
    if refused := [place for place in dict.fromkeys(asked) if place not in allowed]:
        notes.append(f"the repository asks for {', '.join(refused)}, which SCHOOL_EGRESS_ALLOW does not allow")
    return granted, notes
