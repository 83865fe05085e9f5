"""Hermes as a layer of a student's image: a Python and a C library of its own, never in the repository's environment.

It lies below the repository's setup and below the leaf's entry point. So all repositories that start from the same
image share its 234 MB, and neither a new lock file nor a new version of our own sources copies them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import ImageBuildError, SandboxError
from orchestrator.sandbox.image_context import BuildContext, ContextFile
from orchestrator.sandbox.images import ensure_images, image_builder, known_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.base import Engine
    from orchestrator.sandbox.image_build import ImageBuilder
    from orchestrator.settings import Settings

NAME = "with-hermes"
DOCKERFILE = b"""\
ARG BASE_IMAGE
ARG HERMES_IMAGE
FROM ${HERMES_IMAGE} AS hermes
FROM ${BASE_IMAGE}
COPY --from=hermes /school/hermes /school/hermes
RUN ["/school/hermes/bin/probe"]
"""
_CONTEXT = BuildContext((ContextFile("Dockerfile", DOCKERFILE),))


def add_hermes(engine: Engine, settings: Settings, below: str, on_line: Callable[[str], None]) -> str:
    """Return the tag of an image with Hermes on it, built when it is not there.

    Raises:
        SandboxError: Hermes does not run on that image; the message names the way out.
        ImageBuildError: the layer itself could not be built.
    """
    hermes = ensure_images(engine, settings, ["hermes"], on_line)["hermes"]
    builder = image_builder(engine, settings, on_line)
    try:
        return builder.layer(NAME, _CONTEXT, below, inputs={"HERMES_IMAGE": hermes})
    except ImageBuildError as error:
        if "--agent light" not in error.log_tail:
            raise
        raise SandboxError(
            f"Hermes does not run on the image {below}: {error.log_tail.strip().rpartition(chr(10))[2]}",
            next_step="Use --agent light, which needs nothing but the image's python3.",
        ) from error


def known_with_hermes(builder: ImageBuilder, settings: Settings, below: str) -> str | None:
    """Return the tag that ``add_hermes`` would give if the engine has it already; nothing is built."""
    hermes = known_image(builder, settings, "hermes")
    tag = hermes and builder.tag(NAME, _CONTEXT, below, inputs={"HERMES_IMAGE": hermes})
    return tag if tag and builder.engine.image(tag) else None
