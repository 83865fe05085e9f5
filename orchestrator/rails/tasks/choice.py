"""Which tracker a home uses: ``bd`` where it is set up, the embedded one otherwise (R-90)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ConfigError
from orchestrator.rails.tasks.beads import BdTasks
from orchestrator.rails.tasks.sqlite import SqliteTasks

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.rails.tasks.base import TaskStore
    from orchestrator.settings import Settings


def open_tasks(home: Home, settings: Settings) -> TaskStore:
    """Return the tracker.

    ``auto`` takes ``bd`` when it is on PATH and SCHOOL_BEADS_FOLDER names a folder that bd knows (it holds ``.beads``):
    a program on PATH alone does not say where somebody keeps their tasks.

    Raises:
        ConfigError: ``bd`` is asked for and is not there.
        TrackerError: the embedded file can't be opened.
    """
    folder = settings.beads_folder.expanduser().absolute() if settings.beads_folder else None
    program = shutil.which("bd")
    ready = program is not None and folder is not None and (folder / ".beads").exists()
    if settings.tracker == "sqlite" or (settings.tracker == "auto" and not ready):
        return SqliteTasks(home.school / "tasks.db")
    if program is None:
        raise ConfigError(
            "SCHOOL_TRACKER is bd, and there is no bd on PATH.",
            next_step="Install beads, or set SCHOOL_TRACKER=sqlite.",
        )
    if folder is None or not ready:
        raise ConfigError(
            f"SCHOOL_TRACKER is bd, and {folder or 'SCHOOL_BEADS_FOLDER'} is no folder that it knows.",
            next_step="Set SCHOOL_BEADS_FOLDER to the folder of your beads; `bd init` makes one.",
        )
    return BdTasks(folder, lock=home.leases / "rail-bd.lock", program=Path(program))
