"""The contract between students, teachers and the principal: records, states, signals, locks, seals.

Standard library only: the host and every container import it. Names are loaded at their first use, so that a
leaf's entry point pays for the submission alone.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orchestrator.bookbag.bead import check_bead, is_bead, new_bead, slug
    from orchestrator.bookbag.dirs import Dirs
    from orchestrator.bookbag.lock import (
        BeadLock,
        acquire_lock,
        bead_lock,
        forget_lock,
        locked_change,
        locked_update_bookbag,
        release_lock,
    )
    from orchestrator.bookbag.record import new_bookbag, verdict_of
    from orchestrator.bookbag.signal import BookbagSignal, ready_beads
    from orchestrator.bookbag.store import (
        archive_bookbag,
        list_bookbags,
        read_bookbag,
        update_bookbag,
        write_bookbag,
    )

_HOMES = {
    "bead": ("check_bead", "is_bead", "new_bead", "slug"),
    "dirs": ("Dirs",),
    "lock": (
        "BeadLock",
        "acquire_lock",
        "bead_lock",
        "forget_lock",
        "locked_change",
        "locked_update_bookbag",
        "release_lock",
    ),
    "record": ("new_bookbag", "verdict_of"),
    "signal": ("BookbagSignal", "ready_beads"),
    "store": ("archive_bookbag", "list_bookbags", "read_bookbag", "update_bookbag", "write_bookbag"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BeadLock",
    "BookbagSignal",
    "Dirs",
    "acquire_lock",
    "archive_bookbag",
    "bead_lock",
    "check_bead",
    "forget_lock",
    "is_bead",
    "list_bookbags",
    "locked_change",
    "locked_update_bookbag",
    "new_bead",
    "new_bookbag",
    "read_bookbag",
    "ready_beads",
    "release_lock",
    "slug",
    "update_bookbag",
    "verdict_of",
    "write_bookbag",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
