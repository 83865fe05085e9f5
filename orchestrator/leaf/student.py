"""The student leaf: one worktree and one container for one bead, from boot to dispose (R-22 to R-28).

The order of calls is the order of the methods. ``dispose`` is idempotent, verifies each removal by looking, and is
called in ``finally`` by the context manager, whatever happened before.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from orchestrator.engine.base import LABEL_DEADLINE, Gone, Kind, Mount
from orchestrator.engine.labels import carries
from orchestrator.engine.retry import patiently
from orchestrator.errors import EngineError, LeafNotBootedError, NameTakenError
from orchestrator.git.dispose import dispose_workspace, remove
from orchestrator.git.freeze import FrozenTree, freeze
from orchestrator.git.landing import keep, kept_ref
from orchestrator.git.workspace import Workspace
from orchestrator.leaf.run import ENGINE_PATIENCE, RunRecord, run_to_end
from orchestrator.leaf.slot import Slot, write_in_worktree
from orchestrator.sandbox.spec import LeafFolders, Limits, leaf_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from orchestrator.engine.base import Container, ContainerSpec, Engine
    from orchestrator.git.repository import Repository
    from orchestrator.home import Home
    from orchestrator.leaf.brief import Brief
    from orchestrator.leaf.journal import Journal

STARTUP_ALLOWANCE = 30
"""Seconds from making a container to the start of its clock: a slow engine must not eat the student's time."""


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """Everything that is decided before a leaf exists."""

    bead: str
    name: str  # study-{role}-{rand8}: worktree and container
    base_sha: str
    image: str
    limits: Limits
    brief: Brief
    soul: str
    instructions: str
    gate: Path | None
    objects_mode: Literal["shared", "reachable"] = "shared"
    userns_mode: str = ""
    keep: bool = False
    kind: Kind = Kind.LEAF


class StudentLeaf:
    """One student, once. Use it as a context manager."""

    def __init__(
        self,
        home: Home,
        engine: Engine,
        repo: Repository,
        plan: LeafPlan,
        journal: Journal,
        *,
        starting: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._home = home
        self._engine = engine
        self._repo = repo
        self.plan = plan
        self._journal = journal
        self._starting = starting
        self._slot: Slot | None = None
        self._workspace: Workspace | None = None
        self._container: str | None = None
        self._adopted = False
        self._deadline = 0
        self._disposed: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    # -- the way ---------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The leaf's folder on the host."""
        suffix = "" if self.plan.kind is Kind.LEAF else f".{self.plan.kind}"
        return self._home.leaves / f"{self.plan.bead}{suffix}"

    def boot(self) -> None:
        """Make the slot, the worktree and the container; nothing runs yet.

        Raises:
            GitError: the worktree can't be made.
            EngineError: the container can't be made.
        """
        plan, journal = self.plan, self._journal
        with journal.step("worktree", name=plan.name, folder=str(self.folder)):
            self._slot = Slot.make(self._home, self.folder)
            self._workspace = Workspace.create(
                self._repo,
                plan.base_sha,
                self.folder,
                name=plan.name,
                lock_dir=self._home.leases,
                owner=self._owner(),
                objects=plan.objects_mode,
                registered=plan.kind is Kind.LEAF,
            )
        if plan.kind is Kind.LEAF:
            for path in self._workspace.missing_submodules:
                journal.note(
                    f"{path}: the files of this submodule are not here (git submodule update --init fetches them)"
                )
        self._deadline = int(time.time()) + plan.limits.wall + STARTUP_ALLOWANCE
        with journal.step("container", name=plan.name, image=plan.image, deadline=self._deadline):
            self._container = self._create()

    def adopt(self, container: Container | None) -> None:
        """Take over a leaf that a principal who died had booted: its folders, and its container if it is there.

        Raises:
            GitError: its worktree is not there, or was never finished.
        """
        self._slot = Slot(self._home, self.folder)
        self._workspace = Workspace.load(self.folder, lock_dir=self._home.leases)
        if container is not None:
            self._container, self._adopted = container.id, True
            self._deadline = int(container.labels[LABEL_DEADLINE])

    def write_brief(self) -> None:
        """Fill the inbox (brief, persona, instructions), and put the brief into the worktree too (R-23, R-24)."""
        slot, workspace = self._booted()
        brief = self.plan.brief.to_json()
        if missing := workspace.missing_submodules:
            brief["guardrails"].append(f"Submodules without their files, leave them alone: {', '.join(missing)}")
        slot.fill_inbox(brief, soul=self.plan.soul, instructions=self.plan.instructions)
        if self.plan.kind is Kind.LEAF:
            self._leave("briefs", json.dumps(brief, ensure_ascii=False, indent=2) + "\n", workspace)

    def run_task(self) -> RunRecord:
        """Run the agent to its end; the container is gone afterwards.

        Raises:
            EngineError: the engine could not start it.
        """
        slot, workspace = self._booted()
        container = self._container
        if container is None:
            raise LeafNotBootedError("The leaf's container was removed already.")
        with self._journal.step("run", container=container):
            record = run_to_end(
                self._engine,
                container,
                deadline=self._deadline,
                starting=self._starting,
                on_event=self._journal.agent_event,
                writable=(workspace.tree, workspace.git_dir, slot.outbox),
                disk_limit=self.plan.limits.disk,
                keep=self.plan.keep,
                started=self._adopted,
            )
        if isinstance(record.removal, Gone):
            self._container = None
        return record

    def freeze(self, message: str, *, when: int | None = None) -> FrozenTree:
        """Turn what the student left into one commit on base_sha; the container must be gone.

        Args:
            message: The commit's text.
            when: The commit's time, epoch seconds; a fixed one makes a repeated freeze the same commit.

        Raises:
            GitError: git could not read the tree; what was done is still in the worktree.
        """
        _, workspace = self._booted()
        with self._journal.step("freeze"):
            return freeze(workspace, message, when=when)

    def keep(self, head_sha: str) -> None:
        """Keep the frozen commit in the user's repository at ``refs/school/<bead>``.

        Raises:
            GitError: it could not be written there.
        """
        _, workspace = self._booted()
        with self._journal.step("ref", ref=kept_ref(self.plan.bead), sha=head_sha):
            keep(workspace, self.plan.bead, head_sha)

    def write_output(self, data: dict[str, Any]) -> None:
        """Leave the full audit and the result in the worktree: a crash of the principal loses nothing (R-23)."""
        _, workspace = self._booted()
        text = json.dumps(data, ensure_ascii=False, indent=2, default=str) + "\n"
        self._leave("outputs", text, workspace)
        self._leave("results", text, workspace)

    def read_outbox(self) -> Slot:
        """Return the slot, whose outbox holds what the student handed in."""
        return self._booted()[0]

    def dispose(self) -> bool:
        """Remove container, worktree and folders; return whether all are gone. Never raises (R-28)."""
        if self._disposed:
            return True
        if self.plan.keep:
            self._journal.note(
                f"kept for debugging: {self.folder} and container {self.plan.name}; school clean removes them"
            )
            return True
        with self._journal.step("dispose", removal=True, name=self.plan.name):
            gone = all([self._remove_container(), self._remove_worktree(), self._remove_folder()])  # each is tried
        self._disposed = gone
        if gone:
            self._slot = self._workspace = None
        return gone

    # -- parts -----------------------------------------------------------------------------------------------------

    def _booted(self) -> tuple[Slot, Workspace]:
        if self._slot is None or self._workspace is None:
            raise LeafNotBootedError(f"Leaf {self.plan.name} is not booted.", next_step="Call boot() first.")
        return self._slot, self._workspace

    def _create(self) -> str:
        """Create the container; an engine that goes away meanwhile may have made it all the same."""
        spec = self._spec()
        for attempt in patiently(ENGINE_PATIENCE):
            with attempt:
                try:
                    return self._engine.create(spec)
                except NameTakenError:
                    holder = self._engine.inspect(spec.name)
                    if attempt.retry_state.attempt_number == 1 or not carries(holder.labels, spec.labels):
                        raise  # somebody else's, or left over: it stays, and the error names it
                    return holder.id
        raise AssertionError  # pragma: no cover - tenacity returns or raises

    def _spec(self) -> ContainerSpec:
        slot, workspace = self._booted()
        objects = tuple(Mount(str(store.host), store.inside, read_only=True) for store in workspace.object_mounts)
        return leaf_spec(
            self._home,
            kind=self.plan.kind,
            bead=self.plan.bead,
            name=self.plan.name,
            image=self.plan.image,
            folders=LeafFolders(
                worktree=workspace.tree,
                pointer=workspace.pointer,
                git=workspace.git_dir,
                objects=objects,
                inbox=slot.inbox,
                outbox=slot.outbox,
                passwd=slot.passwd,
                group=slot.group,
                gate=self.plan.gate,
            ),
            limits=self.plan.limits,
            deadline=self._deadline,
            env={"SCHOOL_AGENT": self.plan.brief.agent},
            userns_mode=self.plan.userns_mode,
            auto_remove=not self.plan.keep,
        )

    def _leave(self, kind: str, text: str, workspace: Workspace) -> None:
        try:
            write_in_worktree(workspace.tree, f".hermes/{kind}/{self.plan.bead}.json", text, self._owner())
        except OSError as error:
            # The repository, or the student, has something else in that place: the record is in the home anyway.
            self._journal.note(f".hermes/{kind} could not be written in the worktree: {error.strerror}")

    def _remove_container(self) -> bool:
        if self._container is None:
            return True
        try:
            gone = isinstance(self._engine.remove(self._container), Gone)
        except EngineError as error:
            self._journal.note(f"container {self.plan.name} could not be removed: {error.message}")
            return False
        if gone:
            self._container = None
        return gone

    def _owner(self) -> tuple[int, int] | None:
        """Whom the worktree is given to: only root can give, and only root has to."""
        return (self._home.uid, self._home.gid) if os.getuid() == 0 else None

    def _remove_worktree(self) -> bool:
        gone = self._workspace is None or dispose_workspace(self._workspace)
        if not gone:
            self._journal.note(f"worktree {self.plan.name} could not be removed")
        return gone

    def _remove_folder(self) -> bool:
        # what a student wrote is in there (its outbox): not for shutil.rmtree, which a deep tree defeats
        return remove(self.folder)
