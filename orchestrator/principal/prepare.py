"""Everything that can be refused before a token is spent: repository, base, limits, model, image, names.

Also where the request's words become facts: which agent, which image, which check, which branch.
"""

from __future__ import annotations

import functools
import re
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator import bookbag
from orchestrator.errors import UsageError
from orchestrator.git.archive import export_archive
from orchestrator.git.blobs import read_file_at
from orchestrator.git.landing import check_branch_free
from orchestrator.git.repository import list_tree, open_repository, resolve_base
from orchestrator.personas import load_soul
from orchestrator.principal.budgets import check_day
from orchestrator.principal.egress import allowed_egress
from orchestrator.principal.request import Budget
from orchestrator.sandbox.repo_config import FILE, RepoConfig, read_config
from orchestrator.sandbox.repo_tree import RepoTree
from orchestrator.sandbox.spec import Limits
from orchestrator.settings import size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.git.repository import Repository
    from orchestrator.principal.request import SpawnRequest
    from orchestrator.principal.school import School
    from orchestrator.settings import Settings

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
MAX_INSTRUCTIONS = 64_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be carried out."""

    request: SpawnRequest
    bead: str
    leaf_name: str
    repo: Repository
    base_sha: str
    branch: str
    agent: str
    model: str
    rehearsal: bool
    image: str
    verify: str | None
    budget: Budget
    limits: Limits
    soul: str
    instructions: str
    objects_mode: Literal["shared", "reachable"] = "shared"
    egress: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return what recovery and readers need to know."""
        return {
            "request": self.request.to_json(),
            "leaf_name": self.leaf_name,
            "common_dir": str(self.repo.common_dir),
            "branch": self.branch,
            "agent": self.agent,
            "model": self.model,
            "image": self.image,
            "verify": self.verify,
        }


def prepare(request: SpawnRequest, school: School, say: Callable[[str], None]) -> Prepared:
    """Check a request against the world.

    Raises:
        UsageError: the request can't be carried out as typed.
        RepositoryUnusableError: the repository is none, bare, or has no commit.
        ConfigError: the repository's ``.school.toml`` is wrong.
        RepoSetupError: the repository's own setup failed.
        SandboxError: the engine can't be used.
        BlockedError: the school's budget of the day is spent.
    """
    request.check()
    settings = school.settings
    nearly_spent = check_day(school.gate, settings)
    notes: list[str] = [*([request.routed] if request.routed else []), *nearly_spent]
    if request.cpus is not None or request.memory is not None:
        info = school.engine.info()
        request.check_against(cpus=info.cpus, memory=info.memory)
    repo = open_repository(Path(request.repo))
    base_sha = resolve_base(repo, request.base)
    if repo.dirty:
        notes.append(f"uncommitted changes stay as they are and are not part of the task ({repo.dirty})")
    bead = _bead(request, school)
    suffix = bead.rpartition("-")[2] if request.bead is None else secrets.token_hex(4)
    branch = check_branch_free(repo, bead)
    if branch.reason:
        notes.append(f"an accepted result becomes the branch {branch.name}: {branch.reason}")
    config = read_config(lambda path: read_file_at(repo, base_sha, path))
    if _differs(repo, base_sha, FILE):
        notes.append(f"the {FILE} in the working tree does not count: only what is committed at base does")
    egress, said = allowed_egress(config.egress, settings)
    notes += said
    if repo.lfs:
        notes.append("Git LFS files are left as pointers")
    model = request.model or settings.student_model
    alias = school.alias(model)
    agent = choose_agent(request.agent, settings, rehearsal=alias.rehearsed)
    tree = tree_at(repo, base_sha)
    image = _image(request, school, tree, config, agent, say, notes)
    budget = Budget.of(request, settings)
    return Prepared(
        request=request,
        bead=bead,
        leaf_name=f"study-{request.role}-{suffix}",
        repo=repo,
        base_sha=base_sha,
        branch=branch.name,
        agent=agent,
        model=model,
        rehearsal=alias.rehearsed,
        image=image,
        verify=(request.verify if request.verify is not None else config.verify) or None,
        budget=budget,
        limits=_limits(request, settings, budget),
        soul=load_soul(f"student-{request.role}"),
        instructions=instructions_at(repo, base_sha),
        objects_mode=config.objects,
        egress=egress,
        notes=tuple(notes),
    )


def _bead(request: SpawnRequest, school: School) -> str:
    if request.bead is None:
        return bookbag.new_bead(request.role, request.domain)
    bead = bookbag.check_bead(request.bead)
    if school.ledger.bead(bead) is not None:
        raise UsageError(f"Bead {bead} exists already.", next_step=f"See it with: school show {bead}")
    return bead


def _differs(repo: Repository, sha: str, path: str) -> bool:
    """Return whether the working tree has another version of a file than the commit has."""
    try:
        return (repo.root / path).read_bytes() != read_file_at(repo, sha, path)
    except OSError:
        return False


def choose_agent(wanted: str, settings: Settings, *, rehearsal: bool) -> str:
    """R-25: hermes by default; light while a scripted model answers, which needs no more."""
    wanted = wanted if wanted != "auto" else settings.default_agent
    if wanted != "auto":
        return wanted
    return "light" if rehearsal else "hermes"


def _image(
    request: SpawnRequest,
    school: School,
    tree: RepoTree,
    config: RepoConfig,
    agent: str,
    say: Callable[[str], None],
    notes: list[str],
) -> str:
    """Return the student's image; what is going to be run for it is shown first."""
    if request.image is not None:
        config = replace(config, image=request.image, image_named_by="--image", dockerfile="")
    if not config.has_image:
        notes.append(
            "no dependencies in a committed .school.toml: the plain student image is used (school setup --repo "
            "proposes one)"
        )
    return school.student_image(config, tree, hermes=agent == "hermes", say=say)


def _limits(request: SpawnRequest, settings: Settings, budget: Budget) -> Limits:
    return Limits(
        wall=budget.wall,
        memory=size_bytes(request.memory or settings.student_memory),
        cpus=request.cpus or settings.student_cpus,
        pids=settings.student_pids,
        disk=size_bytes(settings.student_disk),
        tmp=size_bytes(settings.student_tmp),
        runtime=settings.student_runtime,
    )


def instructions_at(repo: Repository, base_sha: str) -> str:
    """Return the repository's AGENTS.md, else CLAUDE.md, as of base_sha."""
    for name in INSTRUCTION_FILES:
        data = read_file_at(repo, base_sha, name)
        if data:
            return data[:MAX_INSTRUCTIONS].decode("utf-8", "replace")
    return ""


def tree_at(repo: Repository, sha: str) -> RepoTree:
    """Return a commit's tree as building an image needs it."""
    blobs = functools.cache(lambda: {one.path: one.sha for one in list_tree(repo, sha) if one.type == "blob"})
    return RepoTree(
        read=lambda path: read_file_at(repo, sha, path),
        paths=lambda: list(blobs()),
        archive=lambda: export_archive(repo, sha),
        version=_version(repo, sha),
        ids=blobs,
    )


def _version(repo: Repository, sha: str) -> str:
    """Return the version that the nearest tag says, for build tools that would ask git."""
    answer = repo.run("describe", "--tags", "--abbrev=0", sha, check=False)
    match = re.search(r"\d+(?:\.\d+)+", answer.stdout.decode("utf-8", "replace")) if answer.code == 0 else None
    return match.group(0) if match else "0.0.0"
