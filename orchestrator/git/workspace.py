"""A student's worktree with the git dirs that belong to it.

One folder of a bead holds::

    study-{role}-{rand8}/   the worktree, mounted at /workspace
    dotgit                  the file mounted over the worktree's .git: "gitdir: /school/git"
    git/                    the student's own git dir, disposable, mounted at /school/git
    trusted-git/            the host's: index, alternates, attributes, state.json; never mounted

The user's repository gets one entry under ``.git/worktrees`` and is otherwise only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator import layout
from orchestrator.errors import GitError
from orchestrator.faults import fault_point
from orchestrator.git.gitdir import STUDENT, Identity, write_git_dir
from orchestrator.git.ignores import OWN_EXCLUDES, compile_excludes
from orchestrator.git.index import OPTIONS, REGULAR, IndexEntry, hand_over, read_index
from orchestrator.git.locks import repository_lock
from orchestrator.git.ownership import give_back, give_tree
from orchestrator.git.repository import ObjectStore, Repository, missing_object, object_stores, open_repository
from orchestrator.git.run import Running, git, start
from orchestrator.git.submodules import FilledSubmodule, fill_submodules

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT_TIMEOUT = 900.0
"""Seconds for the checkout of a large tree."""

LOCK_REASON = "school: a student works here"

STUDENT_BRANCH = "student"


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a leaf mounts and what the host keeps for reading the result.

    Attributes:
        repo: The user's repository.
        base_sha: What was checked out.
        folder: The bead's folder.
        name: Name of the worktree.
        owner: uid and gid that everything the student may write belongs to; None: whoever runs this.
        object_mounts: Folders of objects to mount read-only, each with its place in the container.
        submodules: Submodules whose files are there.
        missing_submodules: Paths of submodules whose files are not.
        registered: Whether the repository lists it among its worktrees.
        handed_over_ns: Time at which nobody but the host had touched it (epoch, ns), by the file system's clock.
    """

    repo: Repository
    base_sha: str
    folder: Path
    name: str
    owner: tuple[int, int] | None
    lock_dir: Path
    object_mounts: tuple[ObjectStore, ...] = ()
    submodules: tuple[FilledSubmodule, ...] = ()
    missing_submodules: tuple[str, ...] = ()
    registered: bool = True
    handed_over_ns: int = 0

    @property
    def tree(self) -> Path:
        """The worktree."""
        return self.folder / self.name

    @property
    def pointer(self) -> Path:
        """The file to mount read-only over the worktree's ``.git``."""
        return self.folder / "dotgit"

    @property
    def git_dir(self) -> Path:
        """The student's git dir: after the student has run, a stranger's."""
        return self.folder / "git"

    @property
    def trusted(self) -> Path:
        """The host's git dir."""
        return self.folder / "trusted-git"

    @property
    def index(self) -> Path:
        """The index of what was handed over."""
        return self.trusted / "index"

    @classmethod
    def create(
        cls,
        repo: Repository,
        base_sha: str,
        folder: Path,
        *,
        name: str,
        lock_dir: Path,
        owner: tuple[int, int] | None = None,
        identity: Identity = STUDENT,
        objects: Literal["shared", "reachable"] = "shared",
        registered: bool = True,
    ) -> Workspace:
        """Check ``base_sha`` out into ``folder/name``, whole and byte for byte, with the git dirs beside it.

        Args:
            repo: The user's repository.
            base_sha: Full id of a commit.
            folder: The bead's folder; made when missing.
            name: Name of the worktree (R-23).
            lock_dir: Where the repository's lock file is kept (not in the repository).
            owner: uid and gid to give it to; only root can.
            identity: Who the student's own commits are by.
            objects: ``shared``: all the repository's objects are mounted read-only. ``reachable``: a copy of what
                ``base_sha`` reaches is put into the student's git dir, and nothing is mounted.
            registered: Whether to make it a worktree of the repository (``git worktree add``, locked). A tree for
                verification need not be.

        Raises:
            GitError: git failed; whatever had been made is removed again.
        """
        workspace = cls(repo, base_sha, folder, name, owner, lock_dir, registered=registered)
        tags = _start_tags(repo, base_sha if objects == "reachable" else None)
        try:
            return workspace._build(tags, identity, shared=objects == "shared")
        except BaseException:
            from orchestrator.git.dispose import dispose_workspace  # noqa: PLC0415 - it imports this module

            tags.kill()
            dispose_workspace(workspace)
            raise

    @classmethod
    def load(cls, folder: Path, *, lock_dir: Path) -> Workspace:
        """Return the workspace that an earlier process made in ``folder`` (recovery, R-49).

        Raises:
            GitError: there is none, or it was not finished.
        """
        try:
            state = json.loads((folder / "trusted-git" / "state.json").read_bytes())
            return cls(
                repo=open_repository(Path(state["repo"])),
                base_sha=state["base_sha"],
                folder=folder,
                name=state["name"],
                owner=tuple(state["owner"]) if state["owner"] else None,
                lock_dir=lock_dir,
                object_mounts=tuple(ObjectStore(Path(host), inside) for host, inside in state["object_mounts"]),
                submodules=tuple(FilledSubmodule(path, sha, Path(index)) for path, sha, index in state["submodules"]),
                missing_submodules=tuple(state["missing_submodules"]),
                registered=state["registered"],
                handed_over_ns=state["handed_over_ns"],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GitError(
                f"There is no finished workspace in {folder}: {error}.", next_step="The bead has to start afresh."
            ) from error

    def _build(self, tags: Running, identity: Identity, *, shared: bool) -> Workspace:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shallow = _read(self.repo.common_dir / "shallow")
        write_git_dir(
            self.trusted,
            object_format=self.repo.object_format,
            head=self.base_sha,
            alternates=[str(self.repo.common_dir / "objects")],  # git follows the nested ones itself
            shallow=shallow,
        )
        if self.registered:
            self._register()
            fault_point("worktree.registered")
        else:
            self.tree.mkdir()
            (self.tree / ".git").touch()  # what dotgit is mounted over
        entries = self._checkout()
        filled, missing = fill_submodules(
            entries,
            tree=self.tree,
            trusted=self.trusted,
            git_dirs=(self.repo.git_dir, self.repo.common_dir),
            hash_bytes=self.repo.hash_bytes,
        )
        (self.trusted / "info" / "exclude").write_bytes(self._excludes(entries))
        refs = tags.result().stdout
        mounts = object_stores(self.repo.common_dir / "objects", layout.OBJECTS) if shared else ()
        write_git_dir(
            self.git_dir,
            object_format=self.repo.object_format,
            head=f"ref: refs/heads/{STUDENT_BRANCH}",
            alternates=[layout.OBJECTS] if shared else (),
            shallow=shallow,
            packed_refs=_packed_refs(refs, self.base_sha, self.repo.head_branch),
            exclude=OWN_EXCLUDES,
            config={"user": {"name": identity.name, "email": identity.email}, "commit": {"gpgSign": "false"}},
        )
        if not shared:
            self._copy_reachable(refs)
        self.pointer.write_text(f"gitdir: {layout.GIT_DIR}\n", encoding="ascii")
        self._give(entries, filled)
        finished = replace(
            self,
            object_mounts=mounts,
            submodules=filled,
            missing_submodules=missing,
            handed_over_ns=self._now(),
        )
        finished._save()  # noqa: SLF001 - its own class
        return finished

    def _register(self) -> None:
        entries = self.repo.common_dir / "worktrees"
        arguments = ("worktree", "add", "--quiet", "--detach", "--no-checkout", "--lock", "--reason", LOCK_REASON)
        with repository_lock(self.lock_dir, self.repo.common_dir):
            answer = git(*arguments, str(self.tree), self.base_sha, cwd=self.repo.root, check=False)
        if answer.code != 0:
            if "invalid reference" in answer.stderr or "bad object" in answer.stderr:
                raise missing_object(self.repo, self.base_sha)
            raise GitError(
                f"git worktree add failed in {self.repo.root}: {answer.stderr}",
                stderr=answer.stderr,
                next_step="If it speaks of permission or space, mend that; else look at `git worktree list`.",
            )
        give_back(self.repo.common_dir, entries)
        give_tree(self.repo.common_dir, entries / self.entry_name())

    def entry_name(self) -> str:
        """Return the name of the repository's entry for this worktree, as the host's git wrote it."""
        return Path(_read(self.tree / ".git").decode(errors="surrogateescape").strip()).name

    def _checkout(self) -> list[IndexEntry]:
        if self.repo.partial:  # comparing with nothing makes git fetch all missing files at once
            nothing = hashlib.new(self.repo.object_format, b"tree 0\0", usedforsecurity=False).hexdigest()
            self.repo.run("diff-tree", "-r", "--numstat", "--no-renames", nothing, self.base_sha)
        git(
            *("read-tree", "--reset", "-u", self.base_sha),
            git_dir=self.trusted,
            work_tree=self.tree,
            cwd=self.tree,
            isolated=True,
            config=(*OPTIONS, f"checkout.workers={min(os.cpu_count() or 1, 8)}"),
            # read straight from the repository: going through the alternate costs a failed look-up for each file
            env={"GIT_OBJECT_DIRECTORY": str(self.repo.common_dir / "objects")},
            timeout=CHECKOUT_TIMEOUT,
        )
        return read_index(self.index.read_bytes(), self.repo.hash_bytes)

    def _excludes(self, entries: Sequence[IndexEntry]) -> bytes:
        """Return the ignore rules of ``base_sha``, read before anybody could change them."""
        files = []
        for entry in entries:
            folder, _, file = entry.path.rpartition(b"/")
            if file == b".gitignore" and entry.mode | 0o111 == REGULAR | 0o111:
                files.append((folder, (self.tree / os.fsdecode(entry.path)).read_bytes()))
        return compile_excludes(files) + OWN_EXCLUDES

    def _copy_reachable(self, refs: bytes) -> None:
        tips = [line.split()[0] for line in refs.splitlines()]
        git(
            *("pack-objects", "--revs", "--quiet", "--delta-base-offset", str(self.git_dir / "objects/pack/pack")),
            git_dir=self.trusted,
            isolated=True,
            stdin=b"\n".join([self.base_sha.encode(), *tips]) + b"\n",
            timeout=CHECKOUT_TIMEOUT,
        )

    def _give(self, entries: Sequence[IndexEntry], filled: Sequence[FilledSubmodule]) -> None:
        """Hand everything the student may write to ``owner``; the student's index is a copy of the trusted one."""
        if self.owner is not None and self.owner != (os.geteuid(), os.getegid()):
            hand_over(self.index, self.tree, self.repo.hash_bytes, self.owner, entries)
            for sub in filled:
                hand_over(sub.index, self.tree / sub.path, self.repo.hash_bytes, self.owner)
            os.chown(self.pointer, *self.owner)
        shutil.copyfile(self.index, self.git_dir / "index")
        if self.owner is not None:
            for folder, _, files in os.walk(self.git_dir):
                os.chown(folder, *self.owner)
                for file in files:
                    os.chown(os.path.join(folder, file), *self.owner)  # noqa: PTH118 - a hot loop

    def _now(self) -> int:
        """Return the file system's own time (ns): what the student changes later can't be older than this."""
        marker = self.trusted / "handed-over"
        marker.touch()
        return marker.stat().st_ctime_ns

    def _save(self) -> None:
        state: dict[str, Any] = {
            "repo": str(self.repo.root),
            "base_sha": self.base_sha,
            "name": self.name,
            "owner": self.owner,
            "object_mounts": [(str(store.host), store.inside) for store in self.object_mounts],
            "submodules": [(sub.path, sub.sha, str(sub.index)) for sub in self.submodules],
            "missing_submodules": self.missing_submodules,
            "registered": self.registered,
            "handed_over_ns": self.handed_over_ns,
        }
        temporary = self.trusted / "state.json.new"
        temporary.write_text(json.dumps(state), encoding="ascii")
        temporary.rename(self.trusted / "state.json")


def export_tree(
    repo: Repository,
    sha: str,
    folder: Path,
    *,
    lock_dir: Path,
    name: str = "tree",
    owner: tuple[int, int] | None = None,
) -> Workspace:
    """Check a commit out a second time, clean, for verification: the layout of a workspace, unknown to the repository.

    Raises:
        GitError: git failed, or the commit is not in the repository.
    """
    return Workspace.create(repo, sha, folder, name=name, lock_dir=lock_dir, owner=owner, registered=False)


def _start_tags(repo: Repository, merged: str | None) -> Running:
    """Start listing the tags; it runs beside the checkout."""
    form = "--format=%(objectname) %(refname)%(if)%(*objectname)%(then) %(*objectname)%(end)"
    reached = [f"--merged={merged}"] if merged else []
    return start("for-each-ref", form, *reached, "refs/tags", git_dir=repo.common_dir, isolated=True)


def _packed_refs(tags: bytes, base_sha: str, branch: str | None) -> bytes:
    """Return a packed-refs file with the tags, the base's branch, and the student's own branch at ``base_sha``."""
    refs: dict[bytes, bytes] = {}
    for line in tags.splitlines():
        oid, name, *peeled = line.split(b" ")
        refs[name] = oid + b" " + name + b"\n" + b"".join(b"^" + target + b"\n" for target in peeled)
    for short in {branch or STUDENT_BRANCH, STUDENT_BRANCH}:
        # a branch "student/x" and the branch "student" can't both be
        if short == STUDENT_BRANCH or not short.startswith(STUDENT_BRANCH + "/"):
            name = os.fsencode(f"refs/heads/{short}")
            refs[name] = base_sha.encode() + b" " + name + b"\n"
    return b"# pack-refs with: peeled fully-peeled sorted \n" + b"".join(refs[name] for name in sorted(refs))


def _read(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
