"""Agent ``light``: a small tool loop of our own, standard library only, straight over the gate's socket."""

from __future__ import annotations

import signal

from orchestrator.agents.brief import BriefError, read_brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.agents.events import Emitter
    from orchestrator.agents.loop import Loop
    from orchestrator.agents.places import Places

VERSION = "1"


class Interrupted(BaseException):
    """SIGTERM. Raised in the main thread, so that a running tool's group is ended on the way out."""


def run(places: Places, emit: Emitter) -> int:
    """Work on the brief until it is done, a limit is reached, or SIGTERM comes."""
    signal.signal(signal.SIGTERM, _interrupt)
    loop: Loop | None = None
    try:
        brief = read_brief(places)
        emit.started("light", VERSION, brief.model)
        from orchestrator.agents.loop import (
            Loop,
        )  # 40 ms of http and dataclasses that the first event need not wait for

        loop = Loop(places, brief, emit)
        status, reason, output = loop.run()
    except BriefError as error:
        status, reason, output = "failed", str(error), ""
    except Interrupted:
        status, reason, output = "interrupted", "SIGTERM", loop.last_text if loop else ""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if status not in ("completed", "interrupted"):
        emit.error(reason)
    emit.finish(status, reason, output)
    return 0


def _interrupt(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted
