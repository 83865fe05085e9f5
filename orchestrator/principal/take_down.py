"""Stopping and removing a home's standing parts. Records (ledger, bookbags, archive, evidence) always stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.base import LABEL_HOME, Gone
from orchestrator.engine.connect import connect
from orchestrator.errors import UsageError
from orchestrator.principal.lease import bead_lease_path, held
from orchestrator.principal.ledger import Ledger
from orchestrator.sandbox import parts, standing
from orchestrator.sandbox.image_build import LABEL_IMAGE
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.home import Home


def running_beads(home: Home) -> list[str]:
    """Return the beads that somebody drives now."""
    if not home.ledger.exists():
        return []
    with Ledger(home.ledger) as ledger:
        return [r["bead"] for r in ledger.beads(running=True) if held(bead_lease_path(home.leases, r["bead"]))]


def take_down(*, force: bool) -> Iterator[str]:
    """Stop the standing parts and yield the name of each.

    Raises:
        UsageError: beads run, and ``force`` is off.
    """
    home = settings().home()
    if not (home.school / "home-id").exists():
        return
    _refuse_while_running(home, force=force)
    engine = connect()
    try:
        for container in standing.stop_all(engine, home):
            yield container.name
    finally:
        engine.close()


def clean_up(*, force: bool) -> Iterator[str]:
    """Remove this home's containers, network and volume, and the school's images that nothing uses; yield each name.

    Raises:
        UsageError: beads run, and ``force`` is off.
    """
    home = settings().home()
    if not (home.school / "home-id").exists():
        return
    _refuse_while_running(home, force=force)
    engine = connect()
    try:
        for container in engine.list({LABEL_HOME: home.id}):
            if isinstance(engine.remove(container.id), Gone):
                yield container.name
        engine.remove_network(parts.network_name(home))
        engine.remove_volume(parts.volume_name(home))
        yield parts.network_name(home)
        in_use = {container.image for container in engine.list({LABEL_HOME: ""})}  # other homes' parts too
        for image in engine.images({LABEL_IMAGE: ""}):
            if image.id not in in_use:
                engine.remove_image(image.id, force=True)
                yield ", ".join(image.tags) or image.id
    finally:
        engine.close()


def _refuse_while_running(home: Home, *, force: bool) -> None:
    running = running_beads(home)
    if running and not force:
        raise UsageError(
            f"{len(running)} bead(s) run: {', '.join(running[:5])}.",
            next_step="Wait for them (school ps), or say --force (make down FORCE=1).",
        )
