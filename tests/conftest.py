"""What holds for every test: which ones can't run on this machine, said by name and counted, never skipped silently."""

from __future__ import annotations

import os
import shutil

import pytest

LEFT = pytest.StashKey()

NEEDS = {
    "root": (lambda: os.geteuid() == 0, "needs root"),
    "netns": (
        lambda: os.geteuid() == 0 and all(shutil.which(tool) for tool in ("dockerd", "nsenter", "unshare")),
        "needs root and a dockerd of its own in a network namespace",
    ),
}


def pytest_collection_modifyitems(config, items):
    able = {marker: possible() for marker, (possible, _) in NEEDS.items()}
    kept, left = [], []
    for item in items:
        missing = [marker for marker in NEEDS if item.get_closest_marker(marker) and not able[marker]]
        (left if missing else kept).append(item)
        if missing:
            item.left_because = NEEDS[missing[0]][1]
    if left:
        config.hook.pytest_deselected(items=left)
        config.stash.setdefault(LEFT, []).extend(left)
        items[:] = kept


def pytest_terminal_summary(terminalreporter, config):
    left = config.stash.get(LEFT, [])
    if left:
        terminalreporter.section(f"{len(left)} tests not run on this machine")
        for item in left:
            terminalreporter.line(f"{item.nodeid}: {item.left_because}")
