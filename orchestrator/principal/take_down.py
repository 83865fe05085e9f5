"""Stopping and removing a home's standing parts. Records (ledger, bookbags, archive, evidence) always stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.base import LABEL_HOME, Gone
from orchestrator.engine.connect import connect
from orchestrator.errors import EngineError, UsageError
from orchestrator.principal.lease import bead_lease_path, held
from orchestrator.principal.ledger import Ledger
from orchestrator.sandbox import parts, standing
from orchestrator.sandbox.image_build import LABEL_IMAGE
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.engine.base import Engine
    from orchestrator.home import Home


def running_beads(home: Home) -> list[str]:
    """Return the beads that somebody drives now."""
    if not home.ledger.exists():
        return []
    with Ledger(home.ledger) as ledger:
        return [r["bead"] for r in ledger.beads(running=True) if held(bead_lease_path(home.leases, r["bead"]))]


def open_beads(home: Home) -> list[str]:
    """Return the beads whose work or removal is not done, driven or not."""
    if not home.ledger.exists():
        return []
    with Ledger(home.ledger) as ledger:
        return [str(row["bead"]) for row in ledger.beads(running=True)]


def take_down(*, force: bool) -> Iterator[str]:
    """Stop the standing parts and yield the name of each; with ``force`` the beads that run are cancelled first.

    Raises:
        UsageError: beads run, and ``force`` is off.
    """
    home = settings().home()
    if not (home.school / "home-id").exists():
        return
    _refuse_while_running(home, force=force)
    yield from _end_beads(running_beads(home))
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
    yield from _end_beads(open_beads(home))
    engine = connect()
    try:
        for container in engine.list({LABEL_HOME: home.id}):
            if isinstance(engine.remove(container.id), Gone):
                yield container.name
        engine.remove_network(parts.network_name(home))
        engine.remove_volume(parts.volume_name(home))
        yield parts.network_name(home)
        yield from _remove_images(engine)
    finally:
        engine.close()


def _remove_images(engine: Engine) -> Iterator[str]:
    """Remove the school's images that no container of any home uses, children before what they were built on.

    Images are shared by content between the homes on an engine; one that is missing is built again by the next `up`.
    """
    in_use = {container.image for container in engine.list({LABEL_HOME: ""})}
    left = [image for image in engine.images({LABEL_IMAGE: ""}) if image.id not in in_use]
    while left:
        kept = []
        for image in left:
            try:
                for name in image.tags or (image.id,):
                    engine.remove_image(name)
            except EngineError:  # something was built on it: its turn comes when that is gone, if it goes
                kept.append(image)
            else:
                yield ", ".join(image.tags) or image.id
        if len(kept) == len(left):
            return  # what is still used stays: a container that is not ours may be made from it
        left = kept


def _end_beads(beads: Sequence[str]) -> Iterator[str]:
    """Cancel beads while the parts that removing them needs still run; what they did is kept in their repositories."""
    from orchestrator.principal.resume import cancel  # noqa: PLC0415 - it imports what imports this module

    for bead in beads:
        try:
            row = cancel(bead, lambda _line: None)
        except UsageError:
            continue  # it ended by itself just now
        yield f"bead {bead} ({row['outcome']})"


def _refuse_while_running(home: Home, *, force: bool) -> None:
    running = running_beads(home)
    if running and not force:
        raise UsageError(
            f"{len(running)} bead(s) run: {', '.join(running[:5])}.",
            next_step="Wait for them (school ps), or say --force (make down FORCE=1).",
        )
