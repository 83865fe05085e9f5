"""The beads tracker through its command line, ``bd`` (R-90).

Untested against a real bd: there is no package of it here. Written from its documented JSON and tested against a
stand-in that speaks it. One process calls bd at a time, over all processes of a home (a kernel lock).

bd has no fields for repository, role, domain and difficulty, so they travel as labels ``role:coder`` and the like. A
bd database belongs to one folder: a task's repository is that folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Self

from orchestrator.errors import TaskNotFoundError, TrackerError, UsageError
from orchestrator.rails.tasks.base import NewTask, Status, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TIMEOUT = 60.0  # seconds for one call
_STATUSES = {
    "open": Status.OPEN,
    "in_progress": Status.CLAIMED,
    "hooked": Status.CLAIMED,
    "blocked": Status.BLOCKED,
    "deferred": Status.BLOCKED,
    "closed": Status.CLOSED,
}
_FIELDS = ("role", "domain", "difficulty")
_BLOCKED = "school-blocked: "  # how a note begins that says why a task was set aside
_CONFLICT = ("already claimed", "already assigned", "not open", "not claimable", "in_progress", "is closed", "conflict")


class BdTasks:
    """The tasks of one bd database."""

    name = "bd"

    def __init__(self, folder: Path, *, lock: Path, program: Path) -> None:
        """Nothing is called yet.

        Args:
            folder: Where bd runs: it holds ``.beads``.
            lock: File of the lock that keeps calls apart.
            program: The bd to call.
        """
        self._folder = folder
        self._lock = lock
        self._program = program

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create(self, task: NewTask) -> Task:
        """Create a task.

        Raises:
            UsageError: it can't be created as given, its id is taken, or it is for another repository.
        """
        task.check()
        if task.repo and os.path.realpath(task.repo) != os.path.realpath(self._folder):
            raise UsageError(
                f"The bd database in {self._folder} holds tasks of that repository, not of {task.repo}.",
                next_step="Set SCHOOL_BEADS_FOLDER to the other repository, or SCHOOL_TRACKER=sqlite.",
            )
        labels = [f"{name}:{value}" for name in _FIELDS if (value := getattr(task, name))] + list(task.labels)
        argv = ["create", f"--title={task.headline}", f"--priority={task.priority}", "--type=task", "--body-file=-"]
        argv += [f"--id={task.id}"] if task.id else []
        argv += [f"--labels={','.join(labels)}"] if labels else []
        return self._task(_one(self._call(*argv, stdin=task.text)))

    def show(self, task_id: str) -> Task:
        """Return a task."""
        return self._task(_one(self._call("show", _plain(task_id)), task_id))

    def list(self, *, closed: bool = False, limit: int = 200) -> Sequence[Task]:
        """Return tasks in bd's order."""
        found = self._call("list", "--sort=priority", f"--limit={limit}", *(["--all"] if closed else []))
        return [self._task(item) for item in _many(found)]

    def ready(self, *, limit: int = 100) -> Sequence[Task]:
        """Return what bd calls ready: open, and no blocker open."""
        return [self._task(item) for item in _many(self._call("ready", f"--limit={limit}"))]

    def claim(self, task_id: str, owner: str) -> Task | None:
        """Take a task through ``update --claim``, which bd does atomically."""
        try:
            self._call("update", _plain(task_id), "--claim", owner=owner)
        except TrackerError as error:
            if isinstance(error, TaskNotFoundError) or not _is_conflict(error):
                raise
            return None
        task = self.show(task_id)  # what update prints differs between versions; what counts is what is stored
        return task if task.status is Status.CLAIMED and task.owner == owner else None

    def claim_next(self, owner: str) -> Task | None:
        """Take the next ready task through ``ready --claim``."""
        found = _many(self._call("ready", "--claim", owner=owner))
        return self._task(found[0]) if found else None

    def block(self, task_id: str, reason: str) -> Task:
        """Set a task aside; the reason goes to its notes."""
        note = f"{_BLOCKED}{_line(reason)}"
        self._call("update", _plain(task_id), "--status=blocked", f"--append-notes={note}")
        return self.show(task_id)

    def reopen(self, task_id: str, reason: str = "") -> Task:
        """Make a task open, without an owner."""
        note = [f"--append-notes=school-reopened: {_line(reason)}"] if reason else []
        self._call("update", _plain(task_id), "--status=open", "--assignee=", *note)
        return self.show(task_id)

    def close(self, task_id: str, reason: str) -> Task:
        """Close a task."""
        task = self.show(task_id)
        if task.status is Status.CLOSED:
            return task
        self._call("close", _plain(task_id), f"--reason={_line(reason)}")
        return self.show(task_id)

    def _task(self, item: dict[str, Any]) -> Task:
        labels = [str(label) for label in item.get("labels") or []]
        fields = {name: value for name, _, value in (label.partition(":") for label in labels) if name in _FIELDS}
        kept = tuple(label for label in labels if label.partition(":")[0] not in _FIELDS)
        status = _STATUSES.get(str(item.get("status")), Status.BLOCKED)  # a status of one's own is nothing to claim
        notes = [line for line in str(item.get("notes") or "").splitlines() if line.startswith(_BLOCKED)]
        blocked = notes[-1].removeprefix(_BLOCKED) if notes and status is Status.BLOCKED else ""
        title = str(item.get("title") or "")
        priority = item.get("priority")
        return Task(
            id=str(item["id"]),
            title=title,
            text=str(item.get("description") or title),
            status=status,
            priority=priority if isinstance(priority, int) else 2,
            repo=str(self._folder),
            role=fields.get("role", ""),
            domain=fields.get("domain", ""),
            difficulty=fields.get("difficulty", ""),
            labels=kept,
            owner=str(item.get("assignee") or "") if status is Status.CLAIMED else "",
            reason=str(item.get("close_reason") or blocked),
            created=str(item.get("created_at") or ""),
            updated=str(item.get("updated_at") or ""),
        )

    def _call(self, *arguments: str, owner: str = "", stdin: str = "") -> Any:
        env = {**os.environ, "BD_JSON_ENVELOPE": "1", "NO_COLOR": "1"} | (
            {"BEADS_ACTOR": owner, "BD_ACTOR": owner} if owner else {}
        )
        actor = [f"--actor={owner}"] if owner else []
        argv = [str(self._program), *arguments, *actor, "--json"]
        with self._alone():
            try:
                done = subprocess.run(
                    argv,
                    check=False,
                    cwd=self._folder,
                    env=env,
                    input=stdin,
                    capture_output=True,
                    encoding="utf-8",
                    errors="replace",
                    timeout=TIMEOUT,
                )
            except subprocess.TimeoutExpired:
                raise TrackerError(f"bd {arguments[0]} did not end within {TIMEOUT:.0f} s.") from None
            except OSError as error:
                raise TrackerError(f"bd can't be started: {error}.") from error
        if done.returncode != 0:
            raise _error(arguments[0], done)
        try:
            return json.loads(done.stdout) if done.stdout.strip() else None
        except ValueError:
            raise TrackerError(
                f"bd {arguments[0]} did not answer with JSON: {done.stdout[:200]!r}.",
                next_step="Check that this bd knows --json: bd --version",
            ) from None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # freed by the kernel, whatever ends us; a call is bounded by TIMEOUT
            yield


def _error(command: str, done: subprocess.CompletedProcess[str]) -> TrackerError:
    """Return bd's own error: JSON on stderr (on stdout in some versions), or whatever it printed."""
    text, code = "", ""
    for stream in (done.stderr, done.stdout):
        with contextlib.suppress(ValueError):
            found = _unwrapped(json.loads(stream))
            if isinstance(found, dict) and found.get("error"):
                text, code = str(found["error"]), str(found.get("code") or "")
                break
    text = text or (done.stderr or done.stdout).strip()[-300:] or f"exit code {done.returncode}"
    if code == "not_found" or "not found" in text.lower():
        return TaskNotFoundError(f"bd {command}: {text}", next_step="List them: school tasks --all")
    return TrackerError(f"bd {command}: {text}", next_step="Run the same in the folder of SCHOOL_BEADS_FOLDER.")


def _is_conflict(error: TrackerError) -> bool:
    return any(word in error.message.lower() for word in _CONFLICT)


def _unwrapped(found: Any) -> Any:
    """Return what is in the envelope, when there is one."""
    if isinstance(found, dict) and "schema_version" in found:
        for name in ("data", "items"):
            if name in found:
                return found[name]
    return found


def _many(found: Any) -> Sequence[dict[str, Any]]:
    inner = _unwrapped(found)
    if inner is None:
        return []
    items = inner if isinstance(inner, list) else [inner]
    if not all(isinstance(item, dict) and isinstance(item.get("id"), str) for item in items):
        raise TrackerError(f"bd answered with something that is no list of tasks: {json.dumps(found)[:200]}")
    return items


def _one(found: Any, task_id: str = "") -> dict[str, Any]:
    """Return the one task of an answer: an object, or a list of one."""
    items = _many(found)
    if not items:
        raise TaskNotFoundError(f"bd has no task {task_id[:80]!r}.", next_step="List them: school tasks --all")
    return items[0]


def _plain(task_id: str) -> str:
    """Return an id that can't be read as an option."""
    if not task_id or task_id.startswith("-"):
        raise TaskNotFoundError(f"Not a task's id: {task_id[:80]!r}.")
    return task_id


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
