"""Which images the school has, and making those that the engine does not have yet.

An image's tag names its content: ``school/<name>:<digest>`` over its Dockerfile, its sources and the image it starts
from. So a second call only looks, and a changed line of source makes a new image of that name.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import resources
from orchestrator.errors import ConfigError, SchoolError
from orchestrator.sandbox.base_image import ensure_raw_base, known_raw_base
from orchestrator.sandbox.build_settings import build_route
from orchestrator.sandbox.image_build import ImageBuilder, narrated
from orchestrator.sandbox.image_context import BuildContext, ContextFile, folder_files, package_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.engine.base import Engine
    from orchestrator.settings import Settings


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one image is made of."""

    members: tuple[str, ...] = ()  # rooms and modules of this package
    config: bool = False  # the folder config/ as well
    parent: str = "base"


_BOTH_SIDES = ("__init__.py", "errors.py", "layout.py", "bookbag")
_LEAF = (*_BOTH_SIDES, "agents")

RECIPES: Mapping[str, Recipe] = {
    "service": Recipe(
        (*_BOTH_SIDES, "personas.py", "resources.py", "review", "teacher", "gate", "rehearsal"), config=True
    ),
    "tools": Recipe(),
    "student": Recipe(_LEAF, parent="tools"),
    "omniroute": Recipe(),
    "hermes": Recipe(),
}

ALL = ("service", "student", "omniroute")
"""The images that standing parts and plain students need."""


def ensure_images(
    engine: Engine, settings: Settings, names: Sequence[str], on_line: Callable[[str], None]
) -> dict[str, str]:
    """Make the named images that are missing, side by side, and return the tag of each.

    Args:
        engine: Where the images must be.
        settings: ``base_image``, ``build_ca`` and ``build_proxy`` are read.
        names: Some of ALL, or what they start from: ``base`` or ``tools``.
        on_line: Called with each line of progress, the image's name in front; from several threads.

    Raises:
        ImageMissingError: there is no base image to be had.
        ImageBuildError: a build failed (the others were finished first).
        ConfigError: an unknown name, or a setting that can't be used.
    """
    if unknown := [name for name in names if name not in RECIPES and name != "base"]:
        raise ConfigError(
            f"There is no image named {', '.join(unknown)}.", next_step=f"Use some of: base, {', '.join(ALL)}."
        )
    builder = image_builder(engine, settings, on_line)
    base = _ensure_base(builder, settings)
    tags = {"base": base}
    wanted = [name for name in dict.fromkeys(names) if name != "base"]
    with ThreadPoolExecutor(max_workers=max(1, len(wanted)), thread_name_prefix="image") as pool:
        futures = {name: pool.submit(_ensure_one, builder, base, name) for name in wanted}
    failures: list[SchoolError] = []
    for name, future in futures.items():
        try:
            tags[name] = future.result()
        except SchoolError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return {name: tags[name] for name in names}


def known_image(builder: ImageBuilder, settings: Settings, name: str) -> str | None:
    """Return the tag of an image and what it starts from, if the engine has them all; nothing is built."""
    tag = known_raw_base(builder.engine, settings)
    above = RECIPES[name].parent
    for one in dict.fromkeys(("base", above, name)):
        if tag is None:
            return None
        tag = builder.tag(one, _base_context(builder) if one == "base" else _context(one), tag)
        if builder.engine.image(tag) is None:
            return None
    return tag


def add_leaf_layer(builder: ImageBuilder, name: str, parent: str) -> str:
    """Put the entry point of a leaf on top of an image with Python, and return the tag of the result.

    Raises:
        ImageBuildError: the build failed.
    """
    return builder.layer(name, _context("student"), parent)


def image_builder(engine: Engine, settings: Settings, on_line: Callable[[str], None]) -> ImageBuilder:
    """Return a builder that reaches the outside as the settings say.

    Raises:
        ConfigError: ``build_ca`` can't be used.
    """
    return ImageBuilder(engine, build_route(settings, on_line), on_line)


def _ensure_base(builder: ImageBuilder, settings: Settings) -> str:
    with narrated("base", builder.on_line) as say:
        raw = ensure_raw_base(builder.engine, settings, builder.route, say)
    return builder.layer("base", _base_context(builder), raw)


def _base_context(builder: ImageBuilder) -> BuildContext:
    return BuildContext((*folder_files(resources.share("images") / "base"), ContextFile("ca.pem", builder.route.ca)))


def _ensure_one(builder: ImageBuilder, base: str, name: str) -> str:
    above = RECIPES[name].parent
    parent = base if above == "base" else _ensure_one(builder, base, above)
    return builder.layer(name, _context(name), parent)


def _context(name: str) -> BuildContext:
    recipe = RECIPES[name]
    files = [*folder_files(resources.share("images") / name), *package_files(recipe.members)]
    if recipe.config:
        files += folder_files(resources.share("config"), "build/lib/config/")
    return BuildContext(tuple(files))
