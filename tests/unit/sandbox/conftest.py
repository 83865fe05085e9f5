"""A repository's tree, made from a dictionary."""

from __future__ import annotations

import io
import tarfile

import pytest

from orchestrator.sandbox.repo_tree import RepoTree


def make_tree(files: dict[str, str], version: str = "0.0.0") -> RepoTree:
    def archive() -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, text in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return buffer.getvalue()

    return RepoTree(lambda path: files[path].encode() if path in files else None, lambda: list(files), archive, version)


@pytest.fixture
def tree():
    return make_tree
