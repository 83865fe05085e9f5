"""Runs the gate until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING

from orchestrator.errors import SchoolError
from orchestrator.gate.app import Gate
from orchestrator.gate.control import Control

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


def serve(root: Path, upstream: str) -> int:
    """Serve until told to stop; returns the process's exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_run(root, upstream))
    except SchoolError as error:
        logger.error("%s %s", error.message, error.next_step)  # noqa: TRY400 - the message says it all
        return error.exit_code
    return 0


async def _run(root: Path, upstream: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    gate = Gate(root, upstream)
    await gate.start()
    control = Control(gate)
    await control.open()
    logger.info("The gate serves %d grants in front of %s", len(gate.grants()), upstream)
    await stopped.wait()
    await control.close()
    await gate.stop()
