"""Building one image unless the engine has it, telling the reader what goes on."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.base import LABEL_CONTENT, Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.sandbox.build_settings import BuildRoute
    from orchestrator.sandbox.image_context import BuildContext

LABEL_IMAGE = "school.image"
"""Label with the name of a school's image (``service``, ``student``, …), so that old ones can be found."""

_NOISE = re.compile(
    r"\(Reading database|Removing intermediate|\s*---> |.*build-args .* were not consumed|\x1b"
    r"|Step \d+/\d+ : (?!RUN)|Successfully (built|tagged) "
)
QUIET = 5.0  # seconds without a line of output before the reader is told that it still goes on


@dataclass(frozen=True, slots=True)
class ImageBuilder:
    """Builds images on one engine. ``on_line`` gets each line of progress, from several threads."""

    engine: Engine
    route: BuildRoute
    on_line: Callable[[str], None]

    def layer(self, name: str, context: BuildContext, parent: str, *, inputs: Mapping[str, str] | None = None) -> str:
        """Build an image on top of another, unless the engine has it, and return its tag.

        Args:
            name: The image becomes ``school/<name>:<digest>``.
            context: Its files; the Dockerfile takes ``BASE_IMAGE`` as an argument.
            parent: The image that it starts from; its id enters the digest.
            inputs: Further build arguments that change what is built.

        Raises:
            ImageBuildError: the build failed.
        """
        tag = self.tag(name, context, parent, inputs=inputs)
        if self.engine.image(tag):
            return tag
        with narrated(name, self.on_line) as say:
            say(f"building {tag}")
            started = time.monotonic()
            self.build(context.archive(), tag, say, parent=parent, inputs=inputs)
            say(f"built in {time.monotonic() - started:.0f} s")
        return tag

    def build(
        self,
        archive: bytes,
        tag: str,
        say: Callable[[str], None],
        *,
        parent: str = "",
        dockerfile: str = "Dockerfile",
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Build ``school/<name>:<digest>`` from a tar archive, whatever the engine has.

        Raises:
            ImageBuildError: the build failed.
        """
        name, _, digest = tag.removeprefix("school/").rpartition(":")
        own = {"BASE_IMAGE": parent} if parent else {}
        self.engine.build(
            archive,
            tag=tag,
            build_args={**self.route.args, **(inputs or {}), **own},
            labels={LABEL_IMAGE: name, LABEL_CONTENT: digest},
            dockerfile=dockerfile,
            network=self.route.network,
            on_line=say,
        )

    def tag(self, name: str, context: BuildContext, parent: str, *, inputs: Mapping[str, str] | None = None) -> str:
        """Return the tag that ``layer`` gives, without building."""
        found = self.engine.image(parent)
        digest = context.digest({**(inputs or {}), "BASE_IMAGE": found.id if found else parent})
        return f"school/{name}:{digest}"


@contextmanager
def narrated(name: str, on_line: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Give lines a name in front, and say that it still goes on when none came for a while.

    A thread of its own speaks in the pauses; it ends with the block.
    """
    ended = threading.Event()
    started = last = time.monotonic()

    def say(line: str) -> None:
        nonlocal last
        last = time.monotonic()
        if (text := line.rstrip()) and not _NOISE.match(text):
            on_line(f"[{name}] {text}")

    def fill_pauses() -> None:
        while not ended.wait(1.0):
            if time.monotonic() - last >= QUIET:
                say(f"… still at it ({time.monotonic() - started:.0f} s)")

    thread = threading.Thread(target=fill_pauses, name=f"narrator-{name}", daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ended.set()
        thread.join()
