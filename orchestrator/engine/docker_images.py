"""Images of a Docker-compatible engine: find, build, pull, import, tag, remove."""

from __future__ import annotations

import contextlib
import io
import json
from collections import deque
from typing import TYPE_CHECKING, Any

from orchestrator.engine.docker_errors import from_status
from orchestrator.engine.docker_spec import image_from, image_from_summary, label_filters
from orchestrator.engine.labels import carries
from orchestrator.errors import EngineError, ImageBuildError, ImageMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator.engine.base import Image
    from orchestrator.engine.docker_client import ClientPool

LOG_TAIL = 40  # lines of a failed build that its error carries


class DockerImages:
    """The image verbs of the engine; ``DockerEngine`` inherits them."""

    _clients: ClientPool

    def image(self, reference: str) -> Image | None:
        """Return an image, or None."""
        try:
            with self._clients.borrow(f"look at the image {reference}") as client:
                return image_from(client.inspect_image(reference))  # type: ignore[no-untyped-call]
        except ImageMissingError:
            return None

    def images(self, labels: Mapping[str, str]) -> Sequence[Image]:
        """Return the images that carry these labels."""
        with self._clients.borrow("list images") as client:
            found = client.images(filters={"label": label_filters(labels)})
        images = [image_from_summary(document) for document in found]
        return [image for image in images if carries(image.labels, labels)]

    def build(
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
        """Build an image from a tar archive and return its id.

        Raises:
            ImageBuildError: with the last lines of the build's output.
        """
        tail: deque[str] = deque(maxlen=LOG_TAIL)

        def hear(line: str) -> None:
            tail.append(line)
            if on_line is not None:
                on_line(line)

        try:
            with self._clients.borrow(f"build {tag}") as client:
                stream = client.build(
                    fileobj=io.BytesIO(context),
                    custom_context=True,
                    tag=tag,
                    buildargs=dict(build_args or {}),
                    labels=dict(labels or {}),
                    dockerfile=dockerfile,
                    network_mode=network,
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
                _follow(stream, hear)
        except _StreamedError as error:
            raise _build_error(tag, str(error), tail) from error
        except EngineError as error:
            if not _from_engine(error):  # an engine that is away has an error of its own
                raise
            raise _build_error(tag, error.message, tail) from error
        built = self.image(tag)
        if built is None:
            raise _build_error(tag, "the engine reported success and has no such image", tail)
        return built.id

    def pull(self, reference: str, *, on_line: Callable[[str], None] | None = None) -> str:
        """Pull an image and return its id.

        Raises:
            ImageMissingError: it could not be pulled.
        """
        try:
            with self._clients.borrow(f"pull {reference}") as client:
                _follow(client.pull(reference, stream=True, decode=True), on_line or _ignore)
        except _StreamedError as error:
            raise _not_pulled(reference, str(error)) from error
        except EngineError as error:
            # a registry that can't be reached comes as a 500 of the engine
            if isinstance(error, ImageMissingError) or not _from_engine(error):
                raise
            raise _not_pulled(reference, error.message) from error
        pulled = self.image(reference)
        if pulled is None:
            raise _not_pulled(reference, "the engine reported success and has no such image")
        return pulled.id

    def import_image(self, archive: str, *, tag: str, changes: Sequence[str] = ()) -> str:
        """Make an image from a tar archive of a root file system (a path on the host)."""
        repository, version = _split(tag)
        doing = f"import {archive} as {tag}"
        with self._clients.borrow(doing) as client:
            answer = client.import_image_from_file(archive, repository=repository, tag=version, changes=list(changes))
        for line in answer.splitlines():
            document = json.loads(line)
            if "error" in document:
                raise from_status(500, document["error"], doing=doing)
        imported = self.image(tag)
        if imported is None:
            raise from_status(500, "the engine reported success and has no such image", doing=doing)
        return imported.id

    def tag(self, image: str, reference: str) -> None:
        """Give an image another name."""
        with self._clients.borrow(f"tag {image} as {reference}") as client:
            client.tag(image, *_split(reference))

    def remove_image(self, reference: str, *, force: bool = False) -> None:
        """Remove an image; not there: nothing happens."""
        with (
            contextlib.suppress(ImageMissingError),
            self._clients.borrow(f"remove the image {reference}") as client,
        ):
            client.remove_image(reference, force=force)


def _split(reference: str) -> tuple[str, str | None]:
    """Return repository and tag; a colon before a slash belongs to a registry's port."""
    from docker.utils import parse_repository_tag  # noqa: PLC0415 - see docker_errors.translated

    repository, tag = parse_repository_tag(reference)
    return repository, tag


class _StreamedError(Exception):
    """An error that came inside a stream of progress whose status was 200."""


def _follow(stream: Iterable[dict[str, Any]], hear: Callable[[str], None]) -> None:
    failure = ""
    for document in stream:
        if "error" in document:
            failure = str(document["error"]).strip()  # read on: an abandoned stream keeps its connection
            continue
        text = document.get("stream") or document.get("status") or ""
        if "progressDetail" in document and document.get("progressDetail"):
            continue  # a download's counter, many a second
        if document.get("id") and "status" in document:
            text = f"{document['id']}: {text}"
        for line in str(text).splitlines():
            if line.strip():
                hear(line)
    if failure:
        raise _StreamedError(failure)


def _ignore(_line: str) -> None:
    pass


def _from_engine(error: EngineError) -> bool:
    from docker.errors import APIError  # noqa: PLC0415 - see docker_errors.translated

    return isinstance(error.__cause__, APIError)


def _build_error(tag: str, reason: str, tail: Iterable[str]) -> ImageBuildError:
    return ImageBuildError(
        f"The image {tag} could not be built: {reason}",
        log_tail="\n".join(tail),
        next_step="The end of the build's output says which step failed.",
    )


def _not_pulled(reference: str, reason: str) -> ImageMissingError:
    return ImageMissingError(
        f"The image {reference} could not be pulled: {reason}",
        next_step="Check the name and the engine's way to the registry, or load the image by hand (`docker load`).",
    )
