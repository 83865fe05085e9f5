"""The fake engine's images, networks and volumes: names and labels, nothing behind them."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.base import Image
from orchestrator.engine.labels import carries
from orchestrator.errors import ImageBuildError, ImageMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class FakeStore:
    """The verbs that are about no container; ``FakeEngine`` inherits them.

    Args:
        references: The images that exist from the beginning.
    """

    def __init__(self, references: Iterable[str]) -> None:
        self._images = {reference: fake_image(reference, {}) for reference in references}
        self._networks: dict[str, str] = {}
        self._volumes: dict[str, Mapping[str, str]] = {}
        self._failures: dict[str, list[Exception]] = {}
        self.calls: list[tuple[str, str]] = []
        """Every call so far: (verb, what it was about)."""

    def fail(self, verb: str, error: Exception, *, times: int = 1) -> None:
        """Make the next calls of a verb ("create", "start", …) raise this error."""
        self._failures.setdefault(verb, []).extend([error] * times)

    def _called(self, verb: str, about: str = "") -> None:
        self.calls.append((verb, about))
        if waiting := self._failures.get(verb):
            raise waiting.pop(0)

    def image(self, reference: str) -> Image | None:
        """Return an image, or None."""
        self._called("image", reference)
        by_id = (image for image in self._images.values() if image.id == reference)
        return self._images.get(reference) or next(by_id, None)

    def images(self, labels: Mapping[str, str]) -> Sequence[Image]:
        """Return the images that carry these labels."""
        self._called("images")
        return [image for image in self._images.values() if carries(image.labels, labels)]

    def build(  # noqa: D102 - see base.Engine
        self,
        context: bytes,
        *,
        tag: str,
        build_args: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        dockerfile: str = "Dockerfile",
        network: str = "default",
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        del build_args, network
        self._called("build", tag)
        if not context:
            raise ImageBuildError(f"{tag}: the context is empty", next_step="Give it a tar archive.")
        if on_line is not None:
            on_line(f"Step 1/1 : {dockerfile}")
        return self._add(tag, labels or {})

    def _add(self, reference: str, labels: Mapping[str, str]) -> str:
        self._images[reference] = fake_image(reference, labels)
        return self._images[reference].id

    def pull(self, reference: str, *, on_line: Callable[[str], None] | None = None) -> str:
        """Return the image when it is there: nothing can be pulled in memory."""
        self._called("pull", reference)
        if on_line is not None:
            on_line(f"Pulling {reference}")
        image = self.image(reference)
        if image is None:
            raise ImageMissingError(f"{reference} could not be pulled.", next_step="Build it instead.")
        return image.id

    def import_image(self, archive: str, *, tag: str, changes: Sequence[str] = ()) -> str:
        """Make an image of that name; the archive must exist and is not read."""
        del changes
        self._called("import_image", tag)
        Path(archive).stat()
        return self._add(tag, {})

    def tag(self, image: str, reference: str) -> None:
        """Give an image another name."""
        self._called("tag", reference)
        found = self.image(image)
        if found is None:
            raise ImageMissingError(f"No such image: {image}", next_step="Build it first.")
        self._images[reference] = found

    def remove_image(self, reference: str, *, force: bool = False) -> None:
        """Remove an image."""
        del force
        self._called("remove_image", reference)
        self._images.pop(reference, None)

    def ensure_network(self, name: str, *, labels: Mapping[str, str], internal: bool = False) -> str:
        """Return the network's id."""
        del labels, internal
        self._called("ensure_network", name)
        return self._networks.setdefault(name, hashlib.sha256(name.encode()).hexdigest())

    def remove_network(self, name: str) -> None:
        """Remove a network."""
        self._called("remove_network", name)
        self._networks.pop(name, None)

    def ensure_volume(self, name: str, *, labels: Mapping[str, str]) -> None:
        """Make a volume when missing."""
        self._called("ensure_volume", name)
        self._volumes.setdefault(name, dict(labels))

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""
        self._called("remove_volume", name)
        self._volumes.pop(name, None)


def fake_image(reference: str, labels: Mapping[str, str]) -> Image:
    """Return an image of that name; the id follows from the name."""
    digest = hashlib.sha256(reference.encode()).hexdigest()
    return Image(id=f"sha256:{digest}", tags=(reference,), labels=dict(labels), created=time.time())
