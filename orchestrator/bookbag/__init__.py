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
    from orchestrator.bookbag.files import remove_leftovers
    from orchestrator.bookbag.lock import (
        BeadLock,
        acquire_lock,
        bead_lock,
        forget_lock,
        locked_change,
        locked_update_bookbag,
        release_lock,
    )
    from orchestrator.bookbag.record import (
        COO_REVIEWED,
        CTO_REVIEWED,
        DISPOSED,
        FAIL,
        NOT_REVIEWED,
        PASS,
        REVIEWED,
        SCHEMA_VERSION,
        SCORED,
        SEVERITIES,
        STATES,
        TEACHERS,
        VERDICTS,
        WRITTEN,
        new_bookbag,
        now,
        verdict_of,
    )
    from orchestrator.bookbag.seal import canonical, key_id, make_seal, output_digest, verify_seal
    from orchestrator.bookbag.shapes import Bookbag, Finding, Seal
    from orchestrator.bookbag.signal import BookbagSignal, ready_beads
    from orchestrator.bookbag.states import advance, awaits, state_after_review, transition
    from orchestrator.bookbag.store import archive_bookbag, list_bookbags, read_bookbag, update_bookbag, write_bookbag
    from orchestrator.bookbag.submission import check_submission, make_submission, write_submission
    from orchestrator.bookbag.validate import validate_bookbag, validate_finding
    from orchestrator.bookbag.wait import Watcher, wait_for_bookbag, wait_for_verdicts, wait_until

_HOMES = {
    "bead": ("check_bead", "is_bead", "new_bead", "slug"),
    "dirs": ("Dirs",),
    "files": ("remove_leftovers",),
    "lock": (
        "BeadLock",
        "acquire_lock",
        "bead_lock",
        "forget_lock",
        "locked_change",
        "locked_update_bookbag",
        "release_lock",
    ),
    "record": (
        "COO_REVIEWED",
        "CTO_REVIEWED",
        "DISPOSED",
        "FAIL",
        "NOT_REVIEWED",
        "PASS",
        "REVIEWED",
        "SCHEMA_VERSION",
        "SCORED",
        "SEVERITIES",
        "STATES",
        "TEACHERS",
        "VERDICTS",
        "WRITTEN",
        "new_bookbag",
        "now",
        "verdict_of",
    ),
    "seal": ("canonical", "key_id", "make_seal", "output_digest", "verify_seal"),
    "shapes": ("Bookbag", "Finding", "Seal"),
    "signal": ("BookbagSignal", "ready_beads"),
    "states": ("advance", "awaits", "state_after_review", "transition"),
    "store": ("archive_bookbag", "list_bookbags", "read_bookbag", "update_bookbag", "write_bookbag"),
    "submission": ("check_submission", "make_submission", "write_submission"),
    "validate": ("validate_bookbag", "validate_finding"),
    "wait": ("Watcher", "wait_for_bookbag", "wait_for_verdicts", "wait_until"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "COO_REVIEWED",
    "CTO_REVIEWED",
    "DISPOSED",
    "FAIL",
    "NOT_REVIEWED",
    "PASS",
    "REVIEWED",
    "SCHEMA_VERSION",
    "SCORED",
    "SEVERITIES",
    "STATES",
    "TEACHERS",
    "VERDICTS",
    "WRITTEN",
    "BeadLock",
    "Bookbag",
    "BookbagSignal",
    "Dirs",
    "Finding",
    "Seal",
    "Watcher",
    "acquire_lock",
    "advance",
    "archive_bookbag",
    "awaits",
    "bead_lock",
    "canonical",
    "check_bead",
    "check_submission",
    "forget_lock",
    "is_bead",
    "key_id",
    "list_bookbags",
    "locked_change",
    "locked_update_bookbag",
    "make_seal",
    "make_submission",
    "new_bead",
    "new_bookbag",
    "now",
    "output_digest",
    "read_bookbag",
    "ready_beads",
    "release_lock",
    "remove_leftovers",
    "slug",
    "state_after_review",
    "transition",
    "update_bookbag",
    "validate_bookbag",
    "validate_finding",
    "verdict_of",
    "verify_seal",
    "wait_for_bookbag",
    "wait_for_verdicts",
    "wait_until",
    "write_bookbag",
    "write_submission",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
