"""Which images the school has, and making those that the engine does not have yet.

An image's tag names its content: ``school/<name>:<digest>`` over its Dockerfile, its sources and the image it starts
from. So a second call only looks, and a changed line of source makes a new image of that name.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator import resources
from orchestrator.engine.base import LABEL_CONTENT, Engine
from orchestrator.errors import ConfigError, SchoolError
from orchestrator.sandbox.base_image import LABEL_IMAGE, ensure_raw_base
from orchestrator.sandbox.build_settings import BuildRoute, build_route
from orchestrator.sandbox.image_context import BuildContext, ContextFile, folder_files, package_files
from orchestrator.settings import Settings

__all__ = ["ALL", "LABEL_IMAGE", "build_layer", "ensure_images", "leaf_files"]

_NOISE = re.compile(r"\(Reading database|Removing intermediate|\s*---> |.*build-args .* were not consumed|\x1b")
QUIET = 5.0  # seconds without a line of output before the reader is told that it still goes on


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one image is made of."""

    members: tuple[str, ...] = ()  # rooms and modules of this package
    config: bool = False  # the folder config/ as well


_BOTH_SIDES = ("__init__.py", "errors.py", "layout.py", "bookbag")
_LEAF = (*_BOTH_SIDES, "agents")

RECIPES: Mapping[str, Recipe] = {
    "service": Recipe((*_BOTH_SIDES, "personas.py", "review", "teacher", "gate", "rehearsal"), config=True),
    "student": Recipe(_LEAF),
    "omniroute": Recipe(),
}

ALL = tuple(RECIPES)
"""The images that standing parts and plain students need."""


def ensure_images(
    engine: Engine, settings: Settings, names: Sequence[str], on_line: Callable[[str], None]
) -> dict[str, str]:
    """Make the named images that are missing, side by side, and return the tag of each.

    Args:
        engine: Where the images must be.
        settings: ``base_image``, ``build_ca`` and ``build_proxy`` are read.
        names: Some of ALL, or ``base`` for what all of them start from.
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
    route = build_route(settings, on_line)
    base = _ensure_base(engine, settings, route, on_line)
    tags = {"base": base}
    wanted = [name for name in dict.fromkeys(names) if name != "base"]
    with ThreadPoolExecutor(max_workers=max(1, len(wanted)), thread_name_prefix="image") as pool:
        futures = {name: pool.submit(_ensure_one, engine, route, base, name, on_line) for name in wanted}
    failures: list[SchoolError] = []
    for name, future in futures.items():
        try:
            tags[name] = future.result()
        except SchoolError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return {name: tags[name] for name in names}


def leaf_files(prefix: str = "build/lib/orchestrator/") -> tuple[ContextFile, ...]:
    """Return the part of this package that any image of a leaf carries at ``/school/lib/orchestrator``."""
    return package_files(_LEAF, prefix)


def build_layer(
    engine: Engine,
    route: BuildRoute,
    name: str,
    context: BuildContext,
    parent: str,
    on_line: Callable[[str], None],
    *,
    inputs: Mapping[str, str] | None = None,
) -> str:
    """Build an image on top of another, unless the engine has it, and return its tag.

    Args:
        engine: Where both images are.
        route: How the build reaches the outside.
        name: The image becomes ``school/<name>:<digest>``.
        context: Its files; the Dockerfile takes ``BASE_IMAGE`` as an argument.
        parent: The image that it starts from; its id enters the digest.
        on_line: Called with each line of the build.
        inputs: Further build arguments that change what is built.

    Raises:
        ImageBuildError: the build failed.
    """
    found = engine.image(parent)
    inputs = {**(inputs or {}), "BASE_IMAGE": found.id if found else parent}
    digest = context.digest(inputs)
    tag = f"school/{name}:{digest}"
    if engine.image(tag):
        return tag
    with narrated(name, on_line) as say:
        say(f"building {tag}")
        started = time.monotonic()
        engine.build(
            context.archive(),
            tag=tag,
            build_args={**route.args, **inputs, "BASE_IMAGE": parent},
            labels={LABEL_IMAGE: name, LABEL_CONTENT: digest},
            network=route.network,
            on_line=say,
        )
        say(f"built in {time.monotonic() - started:.0f} s")
    return tag


def _ensure_base(engine: Engine, settings: Settings, route: BuildRoute, on_line: Callable[[str], None]) -> str:
    with narrated("base", on_line) as say:
        raw = ensure_raw_base(engine, settings, route, say)
    files = (*folder_files(resources.share("images") / "base"), ContextFile("ca.pem", route.ca))
    return build_layer(engine, route, "base", BuildContext(files), raw, on_line)


def _ensure_one(engine: Engine, route: BuildRoute, base: str, name: str, on_line: Callable[[str], None]) -> str:
    recipe = RECIPES[name]
    files = [*folder_files(resources.share("images") / name), *package_files(recipe.members)]
    if recipe.config:
        files += folder_files(resources.share("config"), "build/lib/config/")
    return build_layer(engine, route, name, BuildContext(tuple(files)), base, on_line)


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
