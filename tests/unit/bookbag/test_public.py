from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import bookbag

ROOT = Path(__file__).parents[3]

PUBLIC = [
    "BeadLock",
    "Bookbag",
    "BookbagSignal",
    "COO_REVIEWED",
    "CTO_REVIEWED",
    "DISPOSED",
    "Dirs",
    "FAIL",
    "Finding",
    "NOT_REVIEWED",
    "PASS",
    "REVIEWED",
    "SCHEMA_VERSION",
    "SCORED",
    "SEVERITIES",
    "STATES",
    "Seal",
    "TEACHERS",
    "VERDICTS",
    "WRITTEN",
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


def test_the_public_names_are_these():
    assert sorted(bookbag.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(bookbag, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bookbag.nothing


def loaded_by(code: str) -> set[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(' '.join(sys.modules))"
    command = [sys.executable, "-I", "-S", "-c", program]
    return set(subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout.split())


def test_a_leafs_entry_pays_for_the_submission_alone():
    loaded = loaded_by("from orchestrator.bookbag import write_submission")
    heavy = {"typing", "dataclasses", "pathlib", "ctypes", "hashlib", "hmac", "contextlib", "threading", "datetime"}
    assert not loaded & heavy
    assert "orchestrator.bookbag.lock" not in loaded


def test_the_whole_room_needs_the_standard_library_only():
    loaded = loaded_by("import orchestrator.bookbag as b; [getattr(b, name) for name in b.__all__]")
    ours = {name for name in loaded if name.startswith("orchestrator")}
    assert {name for name in ours if not name.startswith("orchestrator.bookbag")} == {
        "orchestrator",
        "orchestrator.errors",
    }
    assert {name.partition(".")[0] for name in loaded - ours} <= set(sys.stdlib_module_names) | {"__main__"}
