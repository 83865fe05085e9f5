"""Between the task tracker and beads: a ready task becomes a request, a bead's end becomes the task's (R-7, R-90).

The process that drives a bead settles its task. One that is killed settles nothing, so every run and every tick looks
for claimed tasks of this home whose bead has ended (``reconcile``). Settling twice changes nothing.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.errors import BlockedError, RailError, UsageError
from orchestrator.principal.director import Director, settle
from orchestrator.principal.lease import held
from orchestrator.principal.request import SpawnRequest
from orchestrator.rails.tasks import Status, bead_of
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger
    from orchestrator.rails.tasks import Task, TaskStore

ATTEMPTS = 3
"""Beads that a task gets when the sandbox fails it, before it is set aside."""

ABANDONED = 300.0
"""Seconds after which a claimed task that nobody starts is open again."""

_AGAIN = frozenset({Outcome.SANDBOX_UNAVAILABLE, Outcome.LOST, Outcome.GATEWAY_DENIED})


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a run says for all its tasks. ``repo`` is for trackers whose tasks name none."""

    repo: str = ""
    review: str = "async"
    agent: str = "auto"
    model: str | None = None
    verify: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a task: ``closed``, ``blocked`` or ``open``."""

    task: str
    status: str
    reason: str


def owner_of(home: Home) -> str:
    """Return the name under which one run of this home claims tasks: of two runs at once only one gets a task."""
    return f"school-{home.id}.{secrets.token_hex(4)}"


def is_owned(home: Home, task: Task) -> bool:
    """Return whether a run of this home claimed a task."""
    return task.owner.rpartition(".")[0] == f"school-{home.id}"


def task_lock(home: Home, bead: str) -> Path:
    """Return the lock that whoever starts a task's bead holds from before the bead exists."""
    return home.leases / f"task-{bead}.lock"


def request_of(task: Task, ledger: Ledger, director: Director, defaults: Defaults) -> SpawnRequest:
    """Return the request for a claimed task; the director decides what it leaves open.

    Raises:
        UsageError: it can't be carried out as it stands.
        BlockedError: nobody is eligible.
    """
    repo = task.repo or defaults.repo
    if not repo:
        raise UsageError("The task names no repository.", next_step="Give one for all such tasks: --repo PATH")
    request = SpawnRequest(
        repo=repo,
        task=_text(task),
        role=task.role or "coder",
        domain=task.domain or "general",
        difficulty=task.difficulty or "medium",
        model=defaults.model,
        agent=defaults.agent,
        verify=defaults.verify,
        review=defaults.review,
        bead=_free_bead(task, ledger),
        task_id=task.id,
    )
    request.check()
    return settle(
        request,
        director,
        role=task.role or None,
        domain=task.domain or None,
        difficulty=task.difficulty or None,
        labels=task.labels,
    )


def settle_task(store: TaskStore, ledger: Ledger, row: Mapping[str, Any]) -> Settled | None:
    """Tell the tracker how a bead ended; None when the bead belongs to no task.

    Raises:
        RailError: the tracker failed; ``reconcile`` tries again.
        LedgerError: it can't be noted that the tracker was told.
    """
    settled = _settle(store, ledger, row)
    if settled is not None:
        ledger.update_bead(str(row["bead"]), data={"settled": settled.status})
    return settled


def _settle(store: TaskStore, ledger: Ledger, row: Mapping[str, Any]) -> Settled | None:
    task_id = str((row["data"].get("request") or {}).get("task_id") or "")
    if not task_id:
        return None
    outcome = Outcome(row["outcome"])
    reason = f"{outcome}: {row['data'].get('reason') or 'no reason'}"
    branch = (row["data"].get("report") or {}).get("branch")
    if branch:
        reason += f"; {branch} at {str(row['head_sha'])[:12]}"
    if outcome in _AGAIN and len(_beads_of(ledger, task_id)) < ATTEMPTS:
        store.reopen(task_id, reason)
        return Settled(task_id, "open", reason)
    if outcome in {Outcome.ACCEPTED, Outcome.REJECTED} or outcome.students_fault:
        store.close(task_id, reason)
        return Settled(task_id, "closed", reason)
    if outcome is Outcome.NOT_REVIEWED:
        reason += f"; judge it with: school review {row['bead']}"
    return block(store, task_id, reason)


def block(store: TaskStore, task_id: str, reason: str) -> Settled:
    """Set a task aside.

    Raises:
        RailError: the tracker failed.
    """
    store.block(task_id, reason[:2000])
    return Settled(task_id, "blocked", reason)


def refusal(error: UsageError | BlockedError) -> str:
    """Return why a task could not be started, for the tracker."""
    return f"{'blocked' if isinstance(error, BlockedError) else 'refused'}: {error.message} {error.next_step}".strip()


def reconcile(home: Home, store: TaskStore, ledger: Ledger) -> list[Settled]:
    """Settle this home's tasks whose bead has ended, and open those again that were claimed and never started.

    Tasks that were set aside count too: their bead may have been reviewed since.

    Raises:
        RailError: the tracker can't be listed.
    """
    done = []
    for task in store.list(limit=10_000):
        if task.status not in {Status.CLAIMED, Status.BLOCKED} or not is_owned(home, task):
            continue
        beads = _beads_of(ledger, task.id)
        row = ledger.bead(beads[-1]) if beads else None
        if row is not None and row["data"].get("settled"):
            row = None  # of an earlier claim
        try:
            if row is not None:
                if row["status"] == "ended" and (settled := settle_task(store, ledger, row)):
                    done.append(settled)
            elif task.status is Status.CLAIMED and _abandoned(home, ledger, task):
                store.reopen(task.id, "whoever claimed it died before its bead was opened")
                done.append(Settled(task.id, "open", "nobody started it"))
        except RailError:
            continue  # this one is looked at again in the next round
    return done


def _text(task: Task) -> str:
    """Return what the student reads: a tracker may keep the point of a task in its title alone."""
    text, title = task.text.strip(), task.title.strip()
    return text if title in text else f"{title}\n\n{text}".strip()


def _beads_of(ledger: Ledger, task_id: str) -> list[str]:
    with ledger.transaction() as db:
        rows = db.execute(
            "SELECT bead FROM beads WHERE json_extract(data, '$.request.task_id')=? ORDER BY created", (task_id,)
        ).fetchall()
    return [row["bead"] for row in rows]


def _free_bead(task: Task, ledger: Ledger) -> str:
    """Return the task's own id (R-6), or one that follows it, when an earlier bead of the task has it."""
    bead = bead_of(task)
    number = 1
    while ledger.bead(bead if number == 1 else _numbered(bead, number)) is not None:
        number += 1
    return bead if number == 1 else _numbered(bead, number)


def _numbered(bead: str, number: int) -> str:
    suffix = f"-r{number}"
    return bookbag.check_bead(bead[: 63 - len(suffix)].rstrip(".-") + suffix)


def _abandoned(home: Home, ledger: Ledger, task: Task) -> bool:
    if held(task_lock(home, _free_bead(task, ledger))):
        return False
    try:
        claimed = datetime.fromisoformat(task.updated).timestamp()
    except ValueError:
        return False  # a tracker that does not tell: a person may reopen it
    return time.time() - claimed > ABANDONED
