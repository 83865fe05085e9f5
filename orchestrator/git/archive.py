"""A commit's whole tree as a tar archive, for the build of an image.

``git archive`` would leave out what ``export-ignore`` names (often the tests and their requirements), rewrite what
``export-subst`` names, and know no submodule. So it is a checkout like a student's, and that is packed.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.git.workspace import export_tree

if TYPE_CHECKING:
    from orchestrator.git.repository import Repository

_FIXED_TIME = 1_700_000_000  # the same tree gives the same archive, so the engine's own cache works


def export_archive(repo: Repository, sha: str) -> bytes:
    """Return every file and symlink of a commit, submodules as far as their objects are there, as a tar archive.

    Raises:
        GitError: git failed, or the commit is not in the repository.
    """
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="school-export-") as scratch:
        tree = export_tree(repo, sha, Path(scratch, "export"), lock_dir=Path(scratch)).tree
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(tree.iterdir()):
                if path.name != ".git":
                    tar.add(path, path.name, filter=_plain)
    return buffer.getvalue()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = _FIXED_TIME
    info.mode = 0o755 if info.mode & 0o100 or info.isdir() else 0o644
    return info
