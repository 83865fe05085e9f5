"""Hermes as a layer on a student's image: a Python and a C library of its own, never in the repository's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import ImageBuildError, SandboxError
from orchestrator.sandbox.image_context import BuildContext, ContextFile
from orchestrator.sandbox.images import ensure_images, image_builder

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.base import Engine
    from orchestrator.settings import Settings

DOCKERFILE = b"""\
ARG BASE_IMAGE
ARG HERMES_IMAGE
FROM ${HERMES_IMAGE} AS hermes
FROM ${BASE_IMAGE}
COPY --from=hermes /school/hermes /school/hermes
RUN ["/school/hermes/bin/probe"]
"""


def add_hermes(engine: Engine, settings: Settings, student: str, on_line: Callable[[str], None]) -> str:
    """Return the tag of a student's image with Hermes on it, built when it is not there.

    Raises:
        SandboxError: Hermes does not run on that image; the message names the way out.
        ImageBuildError: the layer itself could not be built.
    """
    hermes = ensure_images(engine, settings, ["hermes"], on_line)["hermes"]
    builder = image_builder(engine, settings, on_line)
    context = BuildContext((ContextFile("Dockerfile", DOCKERFILE),))
    try:
        return builder.layer("hermes-student", context, student, inputs={"HERMES_IMAGE": hermes})
    except ImageBuildError as error:
        if "--agent light" not in error.log_tail:
            raise
        raise SandboxError(
            f"Hermes does not run on the image {student}: {error.log_tail.strip().rpartition(chr(10))[2]}",
            next_step="Use --agent light, which needs nothing but the image's python3.",
        ) from error
