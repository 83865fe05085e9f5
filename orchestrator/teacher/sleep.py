"""Going to sleep and waking up (R-32), the Library Log (R-34), and what is thrown away (R-35)."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import yaml

from orchestrator.bookbag import files
from orchestrator.bookbag.record import now
from orchestrator.errors import SessionCorruptedError
from orchestrator.review.lenses import TEACHERS, lens_names
from orchestrator.teacher.session import (
    STATE_FILE,
    ConsolidationArtifact,
    SleepState,
    load_state,
    new_session_id,
    save_state,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOG_FILE: Final = "library-log.yaml"
CONSOLIDATED: Final = "consolidated"  # folder: one YAML file a session
LOG_ROTATE_AT: Final = 1 << 20  # bytes; one older file is kept
FAILED_ENTRY: Final = re.compile(r"(?P<bead>[^:]+): (?P<kinds>[^:]+): .*", re.DOTALL)
"""How an entry of ``failed_approaches`` is written: the bead, the kinds of problem, and the worst one in words."""
_SCORES_KEPT: Final = 50
_QUEUE_KEPT: Final = 1000
_ENTRIES_KEPT: Final = 200  # of each list in an artifact: the newest
_KINDS_KEPT: Final = 30


def log(folder: Path, event: str, **details: object) -> None:
    """Append one document to the Library Log (R-34). Nothing written is changed; a full log is put aside whole."""
    text = "---\n" + yaml.safe_dump({"at": now(), "event": event, **details}, sort_keys=False, allow_unicode=False)
    descriptor = os.open(
        folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(descriptor, text.encode())  # one write: two writers can't mix their lines
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size > LOG_ROTATE_AT:
        (folder / LOG_FILE).replace(folder / f"{LOG_FILE}.1")


def wake(folder: Path, agent: str) -> SleepState:
    """Return the state to go on from: what was persisted, under a new session id, or an empty one.

    A corrupt session is put aside and logged; the teacher starts afresh.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = SleepState(session_id=new_session_id(), agent=agent)
    try:
        before = load_state(folder, agent)
    except SessionCorruptedError as error:
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder / STATE_FILE, folder / f"{STATE_FILE}.corrupt")  # noqa: PTH105 - the last one is kept
        log(folder, "wake", agent=agent, session_id=fresh.session_id, state="corrupt", reason=error.message)
        return fresh
    state = fresh if before is None else before
    state.session_id = fresh.session_id
    state.layer_0 = _who(agent)
    log(folder, "wake", agent=agent, session_id=state.session_id, state="empty" if before is None else "loaded")
    return state


def persist(
    folder: Path, state: SleepState, history: Sequence[dict[str, Any]], queue: Sequence[str], learned: str = ""
) -> None:
    """Bring the state up to date with what happened, and write it. ``learned`` is what later reviews are told."""
    state.task_queue = list(queue)[:_QUEUE_KEPT]
    for entry in history:
        if entry.get("verdict"):
            state.scores_snapshot.pop(entry["bead"], None)  # the newest stand last
            state.scores_snapshot[entry["bead"]] = entry["score"]
            state.building = entry.get("repo") or state.building
    for bead in list(state.scores_snapshot)[:-_SCORES_KEPT]:
        del state.scores_snapshot[bead]
    reviewed = [entry for entry in history if entry.get("verdict")]
    passed = sum(entry["verdict"] == "PASS" for entry in reviewed)
    failed = len(history) - len(reviewed)
    state.layer_2_summary = f"{len(reviewed)} reviews in this session, {passed} passed; {failed} attempts failed."
    if learned:
        state.layer_2_summary += f"\nLearned:\n{learned}"
    save_state(folder, state)


def settle(folder: Path, state: SleepState, history: Sequence[dict[str, Any]], *, started: float, keep: int) -> int:
    """Consolidate what there is of a running session, and prune (R-35): a kill then costs a few cycles, not all.

    Returns:
        How many older sessions went.
    """
    if history:
        data = yaml.safe_dump(asdict(consolidate(state, history, started)), sort_keys=False).encode()
        files.replace_file(str(folder / CONSOLIDATED), f"{state.session_id}.yaml", data)
    return prune(folder, keep)


def sleep(
    folder: Path,
    state: SleepState,
    history: Sequence[dict[str, Any]],
    queue: Sequence[str],
    *,
    started: float,
    keep: int,
    learned: str = "",
) -> None:
    """Consolidate the session, persist its state, log, prune. ``started`` is epoch seconds."""
    persist(folder, state, history, queue, learned)
    removed = settle(folder, state, history, started=started, keep=keep)
    log(folder, "sleep", agent=state.agent, session_id=state.session_id, reviews=len(history), pruned=removed)


def consolidate(state: SleepState, history: Sequence[dict[str, Any]], started: float) -> ConsolidationArtifact:
    """Boil a session's history down."""
    reviewed = [entry for entry in history if entry.get("verdict")]
    classes = Counter(name for entry in reviewed for name in set(entry.get("issue_classes", ())))  # beads, not findings
    common = sorted(classes.items(), key=lambda item: (-item[1], item[0]))[:_KINDS_KEPT]
    decisions = [_decision(entry) for entry in history][-_ENTRIES_KEPT:]
    failed = [_failed(entry) for entry in reviewed if entry["verdict"] == "FAIL"][-_ENTRIES_KEPT:]
    size = sum(map(len, decisions)) + sum(map(len, failed)) + sum(len(name) for name, _ in common)
    return ConsolidationArtifact(
        session_id=state.session_id,
        agent=state.agent,
        duration_minutes=round(max(0.0, time.time() - started) / 60, 2),
        tasks_completed=[entry["bead"] for entry in reviewed][-_ENTRIES_KEPT:],
        domains_visited=sorted({entry["domain"] for entry in reviewed if entry.get("domain")}),
        key_decisions=decisions,
        patterns_observed=[f"{name} x{count}" for name, count in common],
        failed_approaches=failed,
        compressed_output_size_tokens=size // 4,  # four characters a token, roughly
    )


def _who(agent: str) -> str:
    teacher = agent.removeprefix("teacher-")
    return f"{agent}: {lens_names(teacher)}" if teacher in TEACHERS else agent


def _decision(entry: dict[str, Any]) -> str:
    if entry.get("verdict"):
        return f"{entry['bead']}: {entry['verdict']} {entry['score']}"
    return f"{entry['bead']}: no review: {entry.get('reason', '')[:200]}"


def _failed(entry: dict[str, Any]) -> str:
    """Return what failed about a bead (FAILED_ENTRY)."""
    kinds = sorted({str(kind).replace(":", " ") for kind in entry.get("issue_classes", ())})[:5]
    return f"{entry['bead']}: {', '.join(kinds) or 'no finding'}: {entry.get('worst', '')}"


def prune(folder: Path, keep: int) -> int:
    """Remove all but the newest ``keep`` consolidated sessions (R-35); return how many went."""
    names = files.names_in(str(folder / CONSOLIDATED), ".yaml")  # sorted, and the ids sort by time
    return sum(files.remove_file(str(folder / CONSOLIDATED), f"{name}.yaml") for name in names[:-keep])
