"""Fill submodules from what the user's repository already has; nothing is fetched.

A filled submodule is plain files without a git dir of its own: nothing in it that git, on the host or in the container,
would take for a repository. Its index is kept in the trusted git dir, so that the freeze can tell what was changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import GitError
from orchestrator.git.gitdir import quoted
from orchestrator.git.index import GITLINK, OPTIONS, REGULAR, IndexEntry, read_index
from orchestrator.git.run import git

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class FilledSubmodule:
    """A submodule whose files are in the workspace.

    Attributes:
        path: Where, from the top of the worktree.
        sha: The commit that its files are of.
        index: The index of its files.
    """

    path: str
    sha: str
    index: Path


def fill_submodules(
    entries: Iterable[IndexEntry], *, tree: Path, trusted: Path, git_dirs: Sequence[Path], hash_bytes: int
) -> tuple[tuple[FilledSubmodule, ...], tuple[str, ...]]:
    """Check out each submodule at its recorded commit, nested ones too.

    Args:
        entries: The superproject's index.
        tree: The worktree, checked out and seen by nobody else yet.
        trusted: The trusted git dir.
        git_dirs: Git dirs of the user's repository whose ``modules`` are looked into, in this order.
        hash_bytes: Length of an object id.

    Returns:
        What was filled, and the paths of what could not be.
    """
    filled: list[FilledSubmodule] = []
    missing: list[str] = []
    queue = [(Path(), list(entries), tuple(path / "modules" for path in git_dirs))]
    while queue:
        prefix, index, module_dirs = queue.pop(0)
        links = [entry for entry in index if entry.mode == GITLINK]
        if not links:
            continue
        modules = any(entry.path == b".gitmodules" and entry.mode | 0o111 == REGULAR | 0o111 for entry in index)
        names = _names(tree / prefix / ".gitmodules", trusted) if modules else {}
        for link in links:
            place = prefix / os.fsdecode(link.path)
            store = _module(module_dirs, names.get(os.fsdecode(link.path)))
            target = trusted / "submodules" / f"{len(filled)}.index"
            if store is None or not _checkout(link.oid.hex(), tree / place, trusted, store, target):
                missing.append(str(place))
                continue
            filled.append(FilledSubmodule(str(place), link.oid.hex(), target))
            queue.append((place, read_index(target.read_bytes(), hash_bytes), (store / "modules",)))
    return tuple(filled), tuple(missing)


def _names(gitmodules: Path, trusted: Path) -> dict[str, str]:
    """Return the submodules' names by path. Git's ``--file`` follows no include.

    The git dir is named: the ``.git`` of a tree that is no worktree is an empty file, which git would stop at.
    """
    records = git(
        *("config", "--file", str(gitmodules), "--null", "--get-regexp", r"^submodule\..*\.path$"),
        git_dir=trusted,
        isolated=True,
        cwd=trusted,
        check=False,
    ).stdout.split(b"\0")[:-1]
    found = {}
    for record in records:
        key, _, path = os.fsdecode(record).partition("\n")
        found[path.rstrip("/")] = key.removeprefix("submodule.").removesuffix(".path")
    return found


def _module(module_dirs: Sequence[Path], name: str | None) -> Path | None:
    """Return the git dir of a submodule in the user's repository; a name can't lead out of ``modules``."""
    if not name or ".." in Path(name).parts or name.startswith("/"):
        return None
    for folder in module_dirs:
        if (folder / name / "objects").is_dir():
            return folder / name
    return None


def _checkout(sha: str, place: Path, trusted: Path, store: Path, index: Path) -> bool:
    objects = str(store / "objects")
    environment = {
        "GIT_INDEX_FILE": str(index),
        # separated by colons, so a path that has one is quoted
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"' if ":" in objects else quoted(objects),
    }
    index.parent.mkdir(exist_ok=True)
    place.mkdir(parents=True, exist_ok=True)
    arguments = ("read-tree", "--reset", "-u", sha)
    try:
        git(*arguments, git_dir=trusted, work_tree=place, cwd=place, isolated=True, config=OPTIONS, env=environment)
    except GitError:  # the commit, or a part of it, is not there (a shallow or a partial one)
        index.unlink(missing_ok=True)
        return False
    return True
