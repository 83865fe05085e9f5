"""Patience with an engine that restarts or stumbles: bounded, and only for what may pass by itself."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential, wait_random

from orchestrator.errors import EngineServerError, EngineUnavailableError

BUDGET = 20.0  # seconds


def patiently(budget: float = BUDGET) -> Retrying:
    """Return an iterator of attempts; the body must look again at what exists, as an attempt may have had effect.

    ::

        for attempt in patiently():
            with attempt:
                engine.list(labels)

    Args:
        budget: Seconds after which the last error is raised as it is.
    """
    return Retrying(
        retry=retry_if_exception_type((EngineUnavailableError, EngineServerError)),
        wait=wait_exponential(multiplier=0.1, max=2.0) + wait_random(0, 0.1),
        stop=stop_after_delay(budget),
        reraise=True,
    )
