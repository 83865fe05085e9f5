"""A user's repository: what kind it is, what a ref means in it, and what a commit holds. Nothing here writes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from orchestrator.errors import GitError, RepositoryUnusableError, UsageError
from orchestrator.git.run import NO_INDEX, Completed, git

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class DirtySummary:
    """Counts of paths in the user's working tree that are not in its current commit."""

    staged: int = 0
    unstaged: int = 0
    untracked: int = 0
    conflicted: int = 0

    def __bool__(self) -> bool:
        return bool(self.staged or self.unstaged or self.untracked or self.conflicted)

    def __str__(self) -> str:
        parts = {
            "staged": self.staged,
            "not staged": self.unstaged,
            "untracked": self.untracked,
            "in conflict": self.conflicted,
        }
        return ", ".join(f"{count} {name}" for name, count in parts.items() if count) or "clean"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One folder of objects: where it is on the host, and where a git dir inside a container looks for it."""

    host: Path
    inside: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with a working tree and a commit (R-55). Paths are absolute and resolved.

    Attributes:
        root: Top of the working tree.
        git_dir: This working tree's own git dir.
        common_dir: The git dir shared by all its worktrees; the same as ``git_dir`` in the main one.
        object_dirs: The repository's objects, then every alternate, nested ones too.
        head_branch: Short name of the current branch, None when detached.
        submodules: Paths of the submodules that the working tree's ``.gitmodules`` names.
        lfs: Whether the root ``.gitattributes`` sends files through Git LFS.
        remote: URL of ``origin`` without credentials, or "".
        foreign: Whether it belongs to another user.
    """

    root: Path
    git_dir: Path
    common_dir: Path
    object_dirs: tuple[Path, ...]
    object_format: str
    head_sha: str
    head_branch: str | None
    shallow: bool
    sparse: bool
    partial: bool
    dirty: DirtySummary
    submodules: tuple[str, ...]
    lfs: bool
    remote: str
    foreign: bool

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.root.name

    @property
    def is_linked_worktree(self) -> bool:
        """Whether this is a worktree that ``git worktree add`` made."""
        return self.git_dir != self.common_dir

    @property
    def hash_bytes(self) -> int:
        """Length of an object id in bytes."""
        return 32 if self.object_format == "sha256" else 20

    def run(self, *args: str, stdin: bytes | None = None, check: bool = True) -> Completed:
        """Run git on the shared git dir, without a working tree and without its attributes or index.

        ``objects`` stands for the working tree: it can hold neither a ``.gitattributes`` nor a ``.gitignore``, so
        that what a commit says of itself, and what lies in the user's folder, changes nothing.

        Raises:
            GitError: git failed.
        """
        return git(
            *args,
            git_dir=self.common_dir,
            work_tree=self.common_dir / "objects",
            cwd=self.common_dir / "objects",
            stdin=stdin,
            isolated=not self.partial,  # a partial clone fetches what it lacks, with its user's settings
            env=NO_INDEX,
            check=check,
        )


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a commit's tree. ``size`` is None for a submodule."""

    mode: str
    type: str
    sha: str
    size: int | None
    path: str


def open_repository(path: Path) -> Repository:
    """Look at the repository that ``path`` is in.

    Raises:
        RepositoryUnusableError: not there, not a repository, bare, or without a commit; with the next step.
        GitError: git failed at reading it.
    """
    path = path.expanduser().absolute()
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise RepositoryUnusableError(f"{path} {what}.", next_step="Name a folder inside a git repository.")
    root, git_dir, common_dir, shallow, object_format = _locate(path)
    foreign = _is_foreign(git_dir)
    config = _config(root)
    head, branch, dirty = _status(root, config, foreign=foreign)
    if head is None:
        raise RepositoryUnusableError(
            f"The repository {root} has no commit yet.",
            next_step=f'Make one, for example: git -C "{root}" add -A && git -C "{root}" commit -m "Start"',
        )
    return Repository(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        object_dirs=tuple(store.host for store in object_stores(common_dir / "objects", "/")),
        object_format=object_format,
        head_sha=head,
        head_branch=branch,
        shallow=shallow,
        sparse=config.get("core.sparsecheckout", "").lower() in {"true", "yes", "on", "1", "\n"},
        partial=any(key.endswith((".promisor", ".partialclone")) for key in config),
        dirty=dirty,
        submodules=_submodule_paths(root),
        lfs=b"filter=lfs" in _small_file(root / ".gitattributes"),
        remote=_without_credentials(config.get("remote.origin.url", "")),
        foreign=foreign,
    )


def resolve_base(repo: Repository, ref: str | None = None) -> str:
    """Return the commit id that ``ref`` (default: the current commit) means.

    Raises:
        UsageError: it names no commit here.
    """
    if ref is None:
        return repo.head_sha
    wanted = ("--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    answer = git("rev-parse", *wanted, cwd=repo.root, check=False)
    sha = answer.stdout.decode().strip().splitlines()
    if answer.code != 0 or not sha or ref.startswith("-"):
        raise UsageError(
            f"{ref!r} names no commit in {repo.root}.",
            next_step=f'List what there is: git -C "{repo.root}" branch --all; a shallow clone may not hold it.',
        )
    return sha[-1]


def dirty_summary(repo: Repository) -> DirtySummary:
    """Count the uncommitted changes of the user's working tree as they are now."""
    return _status(repo.root, _config(repo.root), foreign=repo.foreign)[2]


def is_ignored(repo: Repository, path: str) -> bool:
    """Return whether the user's ignore rules keep an untracked file of the working tree from being added."""
    return bool(git("ls-files", "--others", "--ignored", "--exclude-standard", "--", path, cwd=repo.root).stdout)


def list_tree(repo: Repository, sha: str, paths: Sequence[str] = ()) -> tuple[TreeEntry, ...]:
    """Return every file, symlink and submodule of a commit, with sizes, in git's order."""
    entries = []
    for record in repo.run("ls-tree", "-r", "-l", "-z", "--full-tree", sha, "--", *paths).stdout.split(b"\0")[:-1]:
        head, _, name = record.partition(b"\t")
        mode, kind, oid, size = head.decode().split()
        entries.append(TreeEntry(mode, kind, oid, None if size == "-" else int(size), os.fsdecode(name)))
    return tuple(entries)


def object_stores(objects: Path, inside: str) -> tuple[ObjectStore, ...]:
    """Return a folder of objects and all its alternates, nested ones too.

    An absolute alternate is looked for at the same path inside a container, a relative one beside the folder that
    names it (gitrepository-layout, objects/info/alternates). Alternates that are gone are left out: git only warns.
    """
    found: list[ObjectStore] = []
    queue = [(ObjectStore(objects.resolve(), inside), 0)]
    while queue:
        store, depth = queue.pop(0)
        if any(store.inside == other.inside for other in found) or not store.host.is_dir():
            continue
        found.append(store)
        if depth > 5:  # git follows no further either
            continue
        for raw in _small_file(store.host / "info" / "alternates").splitlines():
            line = os.fsdecode(_unquote(raw))
            if line and not line.startswith("#"):
                host = Path(os.path.realpath(store.host / line))
                place = line if line.startswith("/") else os.path.normpath(os.path.join(store.inside, line))  # noqa: PTH118
                queue.append((ObjectStore(host, os.path.normpath(place)), depth + 1))
    return tuple(found)


def _locate(path: Path) -> tuple[Path, Path, Path, bool, str]:
    """Return root, git dir, common dir, shallow, object format."""
    wanted = ("--is-bare-repository", "--is-inside-work-tree", "--is-shallow-repository", "--show-object-format")
    answer = git(
        *("rev-parse", "--path-format=absolute", *wanted, "--git-dir", "--git-common-dir", "--show-toplevel"),
        cwd=path,
        check=False,
    )
    lines = os.fsdecode(answer.stdout).splitlines()
    if answer.code != 0 and len(lines) < 4:
        if "not a git repository" in answer.stderr:
            raise RepositoryUnusableError(
                f"{path} is not inside a git repository.",
                next_step=f'Name one, or make it one: git -C "{path}" init && git -C "{path}" add -A && '
                f'git -C "{path}" commit -m "Start"',
            )
        reason = answer.stderr.splitlines()[-1] if answer.stderr else "it gave no reason"
        raise RepositoryUnusableError(
            f"git can't read the repository at {path}: {reason}",
            next_step=f'Look at what this says: git -C "{path}" status',
        )
    if lines[0] == "true":
        raise RepositoryUnusableError(
            f"The repository {path} is bare: it has no working tree.",
            next_step=f'Clone it and name the clone: git clone "{path}" FOLDER',
        )
    if lines[1] != "true" or answer.code != 0:
        raise RepositoryUnusableError(
            f"{path} lies inside a git dir, not in a working tree.", next_step="Name the working tree's folder."
        )
    if len(lines) != 7:
        raise RepositoryUnusableError(
            f"The repository at {path} has a line break in its path.", next_step="Rename that folder."
        )
    return Path(lines[6]), Path(lines[4]).resolve(), Path(lines[5]).resolve(), lines[2] == "true", lines[3]


def _is_foreign(git_dir: Path) -> bool:
    mine = {os.geteuid()}
    sudo = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo.isdecimal():  # git takes the caller of sudo for an owner as well
        mine.add(int(sudo))
    return git_dir.stat().st_uid not in mine


def _config(root: Path) -> dict[str, str]:
    """Return the repository's settings that matter here; a key without a value has a line break as its value."""
    keys = r"^(core\.sparsecheckout|remote\.origin\.url|extensions\.partialclone|remote\..*\.promisor|filter\..*)$"
    records = git("config", "--null", "--get-regexp", keys, cwd=root, check=False).stdout.split(b"\0")[:-1]
    found = {}
    for record in records:
        key, separator, value = os.fsdecode(record).partition("\n")
        found[key] = value if separator else "\n"
    return found


def _status(root: Path, config: dict[str, str], *, foreign: bool) -> tuple[str | None, str | None, DirtySummary]:
    """Return commit, branch and counts.

    Filters are the user's programs, and a count wants them run; not in somebody else's repository, and not where one
    fails (Git LFS configured and not installed): then a filtered file may count as changed.
    """
    drivers = {key.rpartition(".")[0] for key in config if key.startswith("filter.")}
    disarmed = [f"{driver}.{key}" for driver in sorted(drivers) for key in ("process=", "clean=", "required=false")]
    options = ("--porcelain=v2", "--branch", "-z", "--no-renames", "--untracked-files=normal")
    arguments = ("status", *options, "--ignore-submodules=dirty")
    answer = git(*arguments, cwd=root, config=disarmed if foreign else (), check=foreign or not disarmed)
    if answer.code != 0:
        answer = git(*arguments, cwd=root, config=disarmed)
    head: str | None = None
    branch: str | None = None
    counts = {"staged": 0, "unstaged": 0, "untracked": 0, "conflicted": 0}
    for record in answer.stdout.split(b"\0"):
        kind = record[:2]
        if record.startswith(b"# branch.oid "):
            head = None if record.endswith(b"(initial)") else record.split()[2].decode()
        elif record.startswith(b"# branch.head "):
            name = os.fsdecode(record[14:])
            branch = None if name == "(detached)" else name
        elif kind == b"1 ":
            counts["staged"] += record[2:3] != b"."
            counts["unstaged"] += record[3:4] != b"."
        elif kind == b"u ":
            counts["conflicted"] += 1
        elif kind == b"? ":
            counts["untracked"] += 1
    return head, branch, DirtySummary(**counts)


def _submodule_paths(root: Path) -> tuple[str, ...]:
    text = _small_file(root / ".gitmodules").decode(errors="surrogateescape")
    return tuple(match.strip().strip('"') for match in re.findall(r"^\s*path\s*=(.*)$", text, re.MULTILINE))


def _small_file(path: Path, limit: int = 1 << 20) -> bytes:
    """Return the start of a regular file, or nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read(limit)
        except OSError:
            return b""


def _unquote(line: bytes) -> bytes:
    """Undo git's C-style quoting of a path, if it is quoted."""
    if not (line.startswith(b'"') and line.endswith(b'"')):
        return line
    names = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}

    def one(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return bytes([int(code, 8) & 0xFF]) if code.isdigit() else names.get(code, code)

    return re.sub(rb"\\([0-7]{3}|.)", one, line[1:-1])


def _without_credentials(url: str) -> str:
    """Return a remote's URL without user, password, query and fragment."""
    if "://" not in url:
        return re.sub(r"^[^/@]*:[^/@]*@", "", url)  # scp-like: user@host:path keeps its user, a password goes
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def missing_object(repo: Repository, sha: str) -> GitError:
    """Return the error for a commit that the repository does not hold."""
    return GitError(
        f"The commit {sha} is not in {repo.root}.",
        next_step=f'Fetch it (git -C "{repo.root}" fetch --unshallow, or fetch ORIGIN {sha}) and try again.',
    )
