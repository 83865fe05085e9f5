"""Read files as they are in a commit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NoReturn

from orchestrator.errors import GitError
from orchestrator.git.repository import missing_object
from orchestrator.git.run import NO_INDEX, start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.git.repository import Repository

LIMIT = 1 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    """A file's content, clipped to the limit it was read with, and its whole size in bytes."""

    data: bytes
    size: int

    @property
    def truncated(self) -> bool:
        """Whether ``data`` is only the start."""
        return len(self.data) < self.size


def read_file_at(repo: Repository, sha: str, path: str, *, limit: int = LIMIT) -> bytes | None:
    """Return one file as of a commit; None when the commit has no such file.

    Raises:
        GitError: the commit is not there, or the file has more than ``limit`` bytes.
    """
    blob = read_files_at(repo, sha, [path], limit=limit).get(path)
    if blob is not None and blob.truncated:
        raise GitError(f"{path} at {sha[:12]} has {blob.size} bytes; at most {limit} are read.")
    return None if blob is None else blob.data


def read_files_at(repo: Repository, sha: str, paths: Iterable[str], *, limit: int = LIMIT) -> dict[str, Blob]:
    """Return several files as of a commit by one process; those it does not have are left out.

    Symlinks are followed as far as they stay inside the commit.

    Args:
        repo: The repository.
        sha: A commit.
        paths: From the top of the repository, without a line break (git's protocol has no quotes); one that has
            is left out.
        limit: Bytes of each file that are kept.

    Raises:
        GitError: the commit is not there, or git failed.
    """
    running = start(
        *("cat-file", "--batch", "--follow-symlinks"),
        git_dir=repo.common_dir,
        work_tree=repo.common_dir / "objects",
        cwd=repo.common_dir / "objects",
        pipe=True,
        env=NO_INDEX,
    )
    stdin, stdout = running.process.stdin, running.process.stdout
    assert stdin is not None  # noqa: S101 - pipe=True
    assert stdout is not None  # noqa: S101
    found: dict[str, Blob] = {}
    try:
        if _ask(stdin, stdout, f"{sha}^{{tree}}", 0) is None:
            _refuse(repo, sha)
        for path in paths:
            blob = _ask(stdin, stdout, f"{sha}:{path}", limit) if "\n" not in path else None
            if blob is not None:
                found[path] = blob
    except BrokenPipeError:
        running.result()  # raises with git's own words
    except BaseException:
        running.kill()
        raise
    running.result()
    return found


def _refuse(repo: Repository, sha: str) -> NoReturn:
    raise missing_object(repo, sha)


def _ask(stdin: IO[bytes], stdout: IO[bytes], name: str, limit: int) -> Blob | None:
    """Ask for one object; the answer is ``<id> <type> <size>`` and the content, or a word for why there is none."""
    stdin.write(os.fsencode(name) + b"\n")
    stdin.flush()
    header = stdout.readline().rstrip(b"\n")
    words = header.split(b" ")
    if header.startswith((b"symlink ", b"dangling ", b"loop ", b"notdir ")):
        stdout.read(int(words[1]) + 1)  # the link's text
        return None
    if len(words) != 3 or words[1] not in {b"blob", b"tree"}:
        if not header:
            raise BrokenPipeError
        return None  # missing, ambiguous, or a submodule
    size = int(words[2])
    data = stdout.read(min(size, limit))
    left = size - len(data)
    while left and (chunk := stdout.read(min(left, _CHUNK))):
        left -= len(chunk)
    stdout.read(1)
    return Blob(data, size) if words[1] == b"blob" or limit == 0 else None
