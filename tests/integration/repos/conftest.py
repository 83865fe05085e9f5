"""Repositories with dependencies: made of source distributions or of a few files, with a `.school.toml` of their own."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.sandbox.image_build import LABEL_IMAGE

IDENTITY = {"GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@x", "GIT_COMMITTER_NAME": "U", "GIT_COMMITTER_EMAIL": "u@x"}
IGNORED = "__pycache__/\n*.so\nbuild/\n*.egg-info/\n.pytest_cache/\n.benchmarks/\n"
OWN_IMAGES = ("repo", "repo-setup", "repo-adopted", "repo-own")


def run_git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, **IDENTITY})
    return done.stdout.strip()


@pytest.fixture(scope="session")
def git():
    return run_git


@dataclass(frozen=True)
class Source:
    """A source distribution of the package index, and what makes it the repository that it was made from.

    Attributes:
        ignored: Lines of .gitignore that upstream has.
        generated: Files that the distribution holds and the repository does not.
    """

    name: str
    version: str
    sha256: str
    ignored: str = ""
    generated: tuple[str, ...] = ("PKG-INFO",)


def fetch(source: Source) -> Path:
    """Return the archive, from the cache or from the package index, checked against its digest."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir(), "school-tests", "sdists")
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{source.name}-{source.version}.tar.gz"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            wanted = f"{source.name}=={source.version}"
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", source.name]
            subprocess.run([*pip, "--dest", scratch, wanted], check=True, timeout=180, stdin=subprocess.DEVNULL)
            (downloaded,) = Path(scratch).glob("*.tar.gz")
            downloaded.replace(archive)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == source.sha256
    return archive


@pytest.fixture(scope="session")
def unpack(tmp_path_factory):
    """Return a function that makes a git repository, with a tag, of a source distribution."""

    def make(source: Source) -> Path:
        folder = tmp_path_factory.mktemp("real")
        with tarfile.open(fetch(source)) as tar:
            tar.extractall(folder, filter="data")
        (root,) = folder.iterdir()
        for path in [*root.rglob("*.egg-info"), *(root / name for name in source.generated)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with (root / ".gitignore").open("a") as file:
            file.write(IGNORED + source.ignored)
        run_git(root, "init", "-q", "-b", "main")
        run_git(root, "add", "-A")
        run_git(root, "commit", "-qm", f"Release {source.version}")
        run_git(root, "tag", "-a", source.version, "-m", source.version)
        return root

    return make


@pytest.fixture(scope="session")
def source():
    return Source


@pytest.fixture(scope="session")
def set_up(school):
    """Return a function that takes the school's proposal as it is: written, committed, built; it returns what was said."""

    def do(root: Path, *build: object) -> str:
        written = school.run("setup", "--repo", root, "--write")
        assert written.returncode == 0, written.stderr
        run_git(root, "add", ".school.toml")
        run_git(root, "commit", "-qm", "Say what students need")
        built = school.run("setup", "--repo", root, "--build", *build, timeout=600)
        assert built.returncode == 0, built.stderr
        return built.stderr

    return do


@pytest.fixture(scope="session", autouse=True)
def _own_images_are_removed(engine):
    """Remove the images of the repositories that were made here; the shared layers below them stay."""
    before = {one.id for kind in OWN_IMAGES for one in engine.images({LABEL_IMAGE: kind})}
    yield
    for kind in OWN_IMAGES:
        for one in engine.images({LABEL_IMAGE: kind}):
            if one.id not in before:
                engine.remove_image(one.tags[0] if one.tags else one.id, force=True)
