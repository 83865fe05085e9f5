"""Files that the repository's setup made in its tree when the image was built: a leaf has them in its worktree too.

A compiled extension or a generated version module is ignored by git, so no checkout brings it; without it the package
can't be imported. images/repo/run_setup.py keeps them in the image. What the worktree has already stays as it is.
"""

from __future__ import annotations

import os
import shutil


def bring(source: str, workspace: str) -> list[str]:
    """Copy what is missing into the worktree; return what could not be copied, and why."""
    problems = []
    for folder, _, names in os.walk(source):
        below = os.path.relpath(folder, source)
        for name in names:
            target = os.path.normpath(os.path.join(workspace, below, name))  # noqa: PTH118 - pathlib is slow to import
            if os.path.lexists(target):
                continue
            try:
                os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
                shutil.copy2(os.path.join(folder, name), target)  # noqa: PTH118
            except OSError as error:
                problems.append(f"{os.path.relpath(target, workspace)}: {error.strerror}")
    return problems
