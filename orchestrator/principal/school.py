"""The school as a running thing: engine, gateway, gate, teachers, and what a conductor asks of them.

``open_school`` finds the standing parts, or brings back what is missing; it is quick when all of them run.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.engine.base import LABEL_KIND, State
from orchestrator.engine.connect import connect
from orchestrator.errors import BookbagError, ReviewError
from orchestrator.gateway.gate_client import GateClient
from orchestrator.gateway.grants import close_grant, open_grant
from orchestrator.personas import load_soul
from orchestrator.principal.bring_up import ensure_parts, gateway_config, keys_of
from orchestrator.principal.lease import slot
from orchestrator.principal.ledger import Ledger
from orchestrator.review.record import read_seal_key
from orchestrator.review.sync import gate_reviewers, review_now
from orchestrator.sandbox import parts, standing
from orchestrator.sandbox.repo_image import RepoTree, ensure_repo_image
from orchestrator.settings import settings, size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from orchestrator.bookbag import Dirs
    from orchestrator.engine.base import Engine
    from orchestrator.gateway.config import Alias, GatewayConfig
    from orchestrator.gateway.grants import Keys
    from orchestrator.home import Home
    from orchestrator.sandbox.repo_image import RepoConfig
    from orchestrator.settings import Settings

TEACHERS = parts.TEACHERS


@dataclass(slots=True)
class School:
    """What a conductor works with."""

    settings: Settings
    home: Home
    engine: Engine
    ledger: Ledger
    gateway: Keys
    gate: GateClient
    config: GatewayConfig
    userns_mode: str = ""

    # -- starts ----------------------------------------------------------------------------------------------------

    def starting(self) -> AbstractContextManager[object]:
        """Hold one of the slots for container starts in flight, over all processes."""
        return slot(self.home.leases, "start", self.settings.max_starts)

    # -- models ----------------------------------------------------------------------------------------------------

    def alias(self, name: str) -> Alias:
        """Return what an alias points at.

        Raises:
            ConfigError: there is no such alias, or no model fits it.
        """
        return self.config.alias(name)

    def open_grant(
        self,
        bead: str,
        *,
        models: Sequence[str],
        limits: dict[str, float | None],
        deadline: float,
        egress: Sequence[str] = (),
    ) -> None:
        """Make a key for this bead alone and hand it to the gate; the principal keeps nothing of it."""
        open_grant(
            self.home,
            self.gateway,
            self.gate,
            self.config,
            bead,
            models=models,
            limits=limits,
            deadline=deadline,
            egress=egress,
            egress_bytes=size_bytes(self.settings.egress_bytes),
        )

    def close_grant(self, bead: str) -> dict[str, Any] | None:
        """Revoke a bead's key at the gateway and its socket at the gate; return what it used. Idempotent."""
        return close_grant(self.home, self.gateway, self.gate, bead)

    def grant_folder(self, bead: str) -> Path:
        """Return the folder with a bead's socket."""
        return self.gate.folder(bead)

    # -- review ----------------------------------------------------------------------------------------------------

    def seal_keys(self) -> dict[str, bytes]:
        """Return each teacher's seal key."""
        return {t: read_seal_key(self.home.keys / f"seal-{t}.key") for t in TEACHERS}

    def absent_teachers(self) -> list[str]:
        """Return the names of teachers that do not run, or say of themselves that they are not well."""
        running = {
            container.labels.get(LABEL_KIND)
            for container in standing.parts(self.engine, self.home)
            if container.state is State.RUNNING and container.health != "unhealthy"
        }
        return [f"teacher-{t}" for t in TEACHERS if parts.teacher_kind(t) not in running]

    def review_here(self, bead: str, teachers: Sequence[str], dirs: Dirs) -> dict[str, str]:
        """Run the teachers' code in this process with their keys; return who could not, and why."""
        sockets = {t: self.home.gate / "sockets" / parts.teacher_grant(t) / "gate.sock" for t in teachers}
        reviewers = gate_reviewers(
            sockets,
            self.settings.review_model,
            budget=self.settings.review_budget,
            timeout=self.settings.default_review_timeout,
            personas={t: load_soul(f"teacher-{t}") for t in teachers},
        )
        try:
            review_now(
                bead,
                reviewers,
                dirs=dirs,
                evidence=self.home.evidence,
                keys=self.seal_keys(),
                teachers=tuple(teachers),
                attempts=self.settings.review_attempts,
            )
        except (ReviewError, BookbagError) as error:
            return dict.fromkeys(teachers, error.message)
        return {}

    def teacher_usage(self, teacher: str, bead: str) -> dict[str, Any] | None:
        """Return what a teacher used for one bead."""
        usage = self.gate.usage(parts.teacher_grant(teacher))
        by_bead: dict[str, Any] = (usage or {}).get("by_bead") or {}
        return by_bead.get(bead)

    # -- images ----------------------------------------------------------------------------------------------------

    def student_image(self, config: RepoConfig, tree: RepoTree, *, hermes: bool, say: Callable[[str], None]) -> str:
        """Return the image of a repository's students, built when it is not there.

        Raises:
            RepoSetupError: the repository's own setup failed.
            SandboxError: an image can't be had, or Hermes does not run on it.
        """
        return ensure_repo_image(self.engine, self.settings, config, tree, say, hermes=hermes)


@contextlib.contextmanager
def open_school(say: Callable[[str], None]) -> Iterator[School]:
    """Open the home's school for work; parts that are missing or stopped are brought back first.

    Raises:
        SandboxError: the engine or a part can't be used.
        LedgerError: the ledger can't be opened.
    """
    in_force = settings()
    home = in_force.home().ensure()
    engine = connect()
    try:
        userns = ensure_parts(engine, home, in_force, say)
        with Ledger(home.ledger) as ledger, keys_of(engine, home) as keys:
            yield School(in_force, home, engine, ledger, keys, GateClient(home), gateway_config(home), userns)
    finally:
        engine.close()
