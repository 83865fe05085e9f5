"""Make one commit of what the student left, on top of what it was given.

How, and why this way:

- ``scan`` finds what differs, in Python: the host's git never walks a stranger's tree.
- The ignore rules are those of ``base_sha``, compiled when the workspace was made; git applies them to the names of new
  files, in an empty work tree. What the student writes into a .gitignore changes nothing here: it can hide nothing, and
  a file that the base ignores stays out, also when the student added it by force. Tracked files are never ignored.
- ``git fast-import`` is fed the bytes: no filter, attribute or index is involved, and one process makes blobs, trees
  and the commit. A file's bytes are its blob's bytes.
- A nested repository's files are taken as ordinary files (its history is not); changes inside a submodule are left
  out. Both are reported, as is everything that git can't store.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from orchestrator.errors import GitError
from orchestrator.git.gitdir import PRINCIPAL, Identity
from orchestrator.git.index import GITLINK, SYMLINK, IndexEntry, read_index
from orchestrator.git.messages import commit_text, student_messages
from orchestrator.git.run import NO_INDEX, failure, git, start
from orchestrator.git.scan import Found, Notice, Scan, open_regular, scan_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from orchestrator.git.workspace import Workspace

MAX_FILE_BYTES = 100 << 20
"""Largest file that is taken, by default: what common hosts accept in a push."""

FROZEN_REF = "refs/school/frozen"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that differs between base and head. Modes are git's, "000000" for none.

    Attributes:
        path: From the top of the repository; undecodable bytes as surrogates.
        status: ``A`` added, ``M`` modified, ``D`` deleted, ``T`` another type (file, symlink, submodule).
        additions: Lines added; 0 for a binary file.
        deletions: Lines removed; 0 for a binary file.
        binary: Whether git takes it for binary.
    """

    path: str
    status: str
    additions: int
    deletions: int
    binary: bool
    old_mode: str
    new_mode: str


@dataclass(frozen=True, slots=True)
class FrozenTree:
    """The result of a student.

    Attributes:
        base_sha: What it started from.
        head_sha: The commit; None when the tree is the base's.
        files_changed: Sorted by path.
        notices: What is not in the commit, or not as it stood.
        student_messages: Of the student's own commits, oldest first.
        ignored: How many new files the base's rules left out.
    """

    base_sha: str
    head_sha: str | None
    tree: str | None
    files_changed: tuple[FileChange, ...]
    notices: tuple[Notice, ...]
    student_messages: tuple[str, ...]
    ignored: int


def freeze(
    workspace: Workspace,
    message: str,
    author: Identity = PRINCIPAL,
    *,
    max_file_bytes: int = MAX_FILE_BYTES,
    when: int | None = None,
) -> FrozenTree:
    """Commit the state of the worktree. The container must be gone. The commit is in the trusted git dir only.

    Args:
        workspace: Where the student worked.
        message: First part of the commit's text.
        author: Author and committer.
        max_file_bytes: Larger files are left out, with a notice.
        when: Time of the commit, epoch seconds; default now.

    Raises:
        GitError: git failed, or the trusted git dir is damaged.
    """
    entries = _entries(workspace, workspace.index)
    scan = _scan(workspace, workspace.tree, entries, max_file_bytes)
    notices = [*scan.notices, *_submodule_notices(workspace, entries, max_file_bytes)]
    changed, ignored = _apply_ignores(workspace, scan.changed)
    messages, complete = student_messages(workspace.git_dir, workspace.base_sha)
    if not complete:
        text = "Not all of the student's own commits could be read; their messages are incomplete."
        notices.append(Notice("history_unread", "", text, loss=False))
    head = tree = None
    files: tuple[FileChange, ...] = ()
    if changed:
        text = commit_text(message, messages)
        head, tree = _import(workspace, changed, text, author.line(int(time.time()) if when is None else when))
        files = file_changes(workspace.trusted, workspace.base_sha, head)
        if any(found.path == b".gitmodules" and found.mode for found in changed):
            notices += _unsafe_submodules(workspace)
    return FrozenTree(workspace.base_sha, head, tree, files, tuple(notices), messages, ignored)


def file_changes(git_dir: Path, base_sha: str, head_sha: str) -> tuple[FileChange, ...]:
    """Return what differs between two commits, sorted by path.

    Raises:
        GitError: git failed.
    """
    output = git(
        *("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"),
        *("--ignore-submodules=none", base_sha, head_sha),
        git_dir=git_dir,
        work_tree=git_dir / "objects",  # no .gitattributes can lie there
        cwd=git_dir / "objects",
        isolated=True,
        env=NO_INDEX,
    ).stdout
    raw: dict[bytes, tuple[str, str, str]] = {}
    changes = []
    parts = iter(output.split(b"\0"))
    for part in parts:
        if part.startswith(b":"):
            old, new, _, _, status = part[1:].decode().split()
            raw[next(parts)] = (status[:1], old, new)
        elif part:
            added, removed, path = part.split(b"\t", 2)
            status, old, new = raw[path]
            binary = added == b"-"
            counts = (0, 0) if binary else (int(added), int(removed))
            changes.append(FileChange(os.fsdecode(path), status, *counts, binary, old, new))
    return tuple(changes)


def _entries(workspace: Workspace, index: Path) -> list[IndexEntry]:
    try:
        return read_index(index.read_bytes(), workspace.repo.hash_bytes)
    except OSError as error:
        raise GitError(
            f"The trusted index {index} can't be read: {error.strerror}.", next_step="The bead has to start afresh."
        ) from error


def _scan(workspace: Workspace, tree: Path, entries: Iterable[IndexEntry], max_file_bytes: int) -> Scan:
    return scan_tree(
        tree,
        entries,
        hash_bytes=workspace.repo.hash_bytes,
        handed_over_ns=workspace.handed_over_ns,
        max_file_bytes=max_file_bytes,
    )


def _submodule_notices(workspace: Workspace, entries: Sequence[IndexEntry], max_file_bytes: int) -> Iterable[Notice]:
    """Report what was changed inside submodules; none of it is part of the superproject's commit."""
    filled = {sub.path: _entries(workspace, sub.index) for sub in workspace.submodules}
    places = {os.fsdecode(entry.path) for entry in entries if entry.mode == GITLINK}
    for path in sorted(places | filled.keys() | set(workspace.missing_submodules)):
        place = workspace.tree / path
        if not place.is_dir() or os.path.realpath(place) != os.path.join(os.path.realpath(workspace.tree), path):  # noqa: PTH118
            continue  # removed or replaced: a change of the superproject, or of the submodule around it
        scan = _scan(workspace, place, filled.get(path, ()), max_file_bytes)
        names = [os.fsdecode(found.path) for found in scan.changed]
        if names:
            some = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            yield Notice("submodule_changed", path, f"Changed inside the submodule, not part of the result: {some}.")


def _apply_ignores(workspace: Workspace, changed: Sequence[Found]) -> tuple[list[Found], int]:
    """Leave out the new files that the base's rules exclude."""
    new = [found.path for found in changed if found.new]
    if not new:
        return list(changed), 0
    empty = workspace.trusted / "empty"
    empty.mkdir(exist_ok=True)
    answer = git(
        *("check-ignore", "--no-index", "-z", "--stdin"),
        git_dir=workspace.trusted,
        work_tree=empty,
        cwd=empty,
        isolated=True,
        stdin=b"".join(b"./" + path + b"\0" for path in new),  # "./": a name may begin with a colon
        env={**NO_INDEX, "GIT_LITERAL_PATHSPECS": "0"},
        check=False,
    )
    if answer.code not in {0, 1}:  # 1: none is ignored
        raise failure(("check-ignore",), answer.code, answer.stderr)
    ignored = {path[2:] for path in answer.stdout.split(b"\0")}
    kept = [found for found in changed if not (found.new and found.path in ignored)]
    return kept, len(changed) - len(kept)


def _import(workspace: Workspace, changed: Sequence[Found], text: str, identity: str) -> tuple[str, str]:
    """Feed the commit to git; return its id and its tree's."""
    running = start(
        *("fast-import", "--quiet", "--done", "--force"),
        git_dir=workspace.trusted,
        cwd=workspace.trusted,
        isolated=True,
        pipe=True,
        # one pack, to be moved as it is; made durable when it is moved
        config=("fastimport.unpackLimit=0", "core.fsync=none"),
    )
    stream = running.process.stdin
    assert stream is not None  # noqa: S101 - pipe=True
    try:
        message = text.encode(errors="replace")
        who = identity.encode(errors="replace")
        stream.write(b"commit %s\nmark :1\nauthor %s\ncommitter %s\n" % (FROZEN_REF.encode(), who, who))
        stream.write(b"data %d\n%s\nfrom %s\n" % (len(message), message, workspace.base_sha.encode()))
        for found in changed:  # before anything is added: a file may have become a folder
            if not found.mode:
                stream.write(b"D %s\n" % _quoted(found.path))
        root = os.fsencode(workspace.tree)
        for found in changed:
            if found.mode:
                stream.write(b"M %o inline %s\ndata %d\n" % (found.mode, _quoted(found.path), found.size))
                _feed(root + b"/" + found.path, found, stream)
                stream.write(b"\n")
        stream.write(b'ls ""\nget-mark :1\ndone\n')
        stream.flush()
    except BrokenPipeError:
        pass  # git ended early: its own words are in the result
    except BaseException:
        running.kill()
        raise
    output = running.result(timeout=600).stdout.decode().split("\n")
    return output[1], output[0].split()[2]


def _feed(path: bytes, found: Found, stream: IO[bytes]) -> None:
    if found.mode == SYMLINK:
        stream.write(os.readlink(path))  # noqa: PTH115 - bytes
        return
    left = found.size
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            stream.write(chunk)
            left -= len(chunk)
    if left:
        raise GitError(
            f"{os.fsdecode(path)} became shorter while it was read.",
            next_step="Something still writes to the worktree: its container must be gone before the freeze.",
        )


def _unsafe_submodules(workspace: Workspace) -> Iterable[Notice]:
    """Report a .gitmodules that git's own check refuses: its names, paths or URLs once ran code in older clients."""
    for pack in (workspace.trusted / "objects" / "pack").glob("pack-*.pack"):
        answer = git(
            *("index-pack", "--fsck-objects", "-o", str(workspace.trusted / "fsck.idx"), str(pack)),
            git_dir=workspace.trusted,
            cwd=workspace.trusted,
            isolated=True,
            check=False,
        )
        said = [line.partition(": ")[2] for line in answer.stderr.splitlines() if ": gitmodules" in line]
        if said:
            text = f"Git's own check refuses it, and hosts may refuse the branch: {'; '.join(said)[:1000]}"
            yield Notice("unsafe_gitmodules", ".gitmodules", text, loss=False)


def _quoted(path: bytes) -> bytes:
    """Return a path in fast-import's quotes."""
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'
