"""What a leaf tells while it works: each effect's intent before it, its end after it, and the agent's events.

The principal's journal writes the ledger and shows a person what happens; ``Silent`` is for use as a library.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Journal(Protocol):
    """Where a leaf's steps and events go."""

    def step(self, name: str, /, *, removal: bool = False, **data: Any) -> contextlib.AbstractContextManager[None]:
        """Note the intent, run the block that has the effect, note its end or its failure.

        A ``removal`` only takes away: it is done also when the intent can't be noted.
        """
        ...

    def agent_event(self, event: dict[str, Any]) -> None:
        """Pass on one event of the agent inside; its texts are untrusted."""
        ...

    def note(self, text: str) -> None:
        """Tell a person something worth knowing."""
        ...


class Silent:
    """A journal that keeps nothing."""

    @contextlib.contextmanager
    def step(self, name: str, /, *, removal: bool = False, **data: Any) -> Iterator[None]:  # noqa: ARG002 - the protocol's
        """Run the block."""
        yield

    def agent_event(self, event: dict[str, Any]) -> None:
        """Drop it."""

    def note(self, text: str) -> None:
        """Drop it."""
