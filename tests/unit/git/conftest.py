"""Real git on real folders; no engine."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.git.repository import Repository, open_repository
from orchestrator.git.workspace import Workspace

_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "LC_ALL": "C",
}


def run_git(folder: Path, *args: str, config: tuple[str, ...] = (), **more) -> str:
    """Run git as the repository's user would."""
    settings = ("protocol.file.allow=always", "safe.directory=*", *config)
    argv = ["git", *(part for item in settings for part in ("-c", item)), *args]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, env=_ENV, **more).stdout.decode().strip()


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_repository(
    root: Path, files: dict[str, str | bytes] | None = None, *, object_format: str = "sha1", branch: str = "main"
) -> Path:
    root.mkdir(parents=True)
    run_git(root, "init", "-q", f"--object-format={object_format}", "-b", branch)
    write(root, files or {"README": "read me\n", "src/a.py": "a = 1\n", "src/b.py": "b = 2\n"})
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "Start")
    return root


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Every path with its bytes, mode, owner and modification time, apart from what the school may add."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            relative = str(path.relative_to(root))
            parts = Path(relative).parts
            if ".git" in parts:
                inside = parts[parts.index(".git") + 1 :]
                if (
                    inside[:1] == ("worktrees",)
                    or inside[:2] == ("refs", "school")
                    or inside[:2] == ("objects", "pack")
                ):
                    continue
            status = path.lstat()
            if path.is_symlink():
                found[relative] = ("link", path.readlink(), status.st_uid)
            elif path.is_dir():
                found[relative] = ("folder", status.st_mode, status.st_uid)
            else:
                found[relative] = ("file", path.read_bytes(), status.st_mode, status.st_uid, status.st_mtime_ns)
    return found


@dataclass
class School:
    """Makes workspaces in one temporary home."""

    root: Path
    count: int = field(default=0)

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    def workspace(self, repo: Repository | Path, sha: str | None = None, **options) -> Workspace:
        self.count += 1
        opened = open_repository(repo) if isinstance(repo, Path) else repo
        return Workspace.create(
            opened,
            sha or opened.head_sha,
            self.root / "leaves" / f"bead-{self.count}",
            name=f"study-coder-{self.count:08d}",
            lock_dir=self.locks,
            **options,
        )


@pytest.fixture
def school(tmp_path: Path) -> School:
    return School(tmp_path / "home")


@pytest.fixture
def repo_path(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


@pytest.fixture
def repo(repo_path: Path) -> Repository:
    return open_repository(repo_path)


@pytest.fixture(params=[None, "owner"])
def owner(request) -> tuple[int, int] | None:
    """Whoever runs the tests and, as root, the unprivileged uid of the containers as well."""
    if request.param is None:
        return None
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    return (10001, 10001)


class Kit:
    """The helpers above, for test modules (which can't import a conftest under importlib mode)."""

    git = staticmethod(run_git)
    write = staticmethod(write)
    make = staticmethod(make_repository)
    snapshot = staticmethod(snapshot)

    @staticmethod
    def files(root: Path, sha: str) -> dict[str, tuple[str, bytes]]:
        """Return mode and content of every path of a commit, as an independent git reads them."""
        found = {}
        for record in run_git(root, "ls-tree", "-r", "-z", sha).split("\0")[:-1]:
            head, name = record.split("\t", 1)
            mode, kind, oid = head.split()
            argv = ["git", "-c", "safe.directory=*", "cat-file", "blob", oid]
            data = b"" if kind == "commit" else subprocess.run(argv, cwd=root, check=True, capture_output=True).stdout
            found[name] = (mode, data)
        return found


@pytest.fixture
def kit() -> Kit:
    return Kit()
