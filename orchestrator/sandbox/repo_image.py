"""A repository's own student image: built with network and without secrets, cached by what it depends on.

Four steps, each an image of its own that is built only when its inputs change:

1. *adopt*: the repository's ``image`` or what its ``dockerfile`` builds is made fit for a leaf. Without either, the
   school's tools image takes its place.
2. Hermes, for students that use it: below the setup, so that repositories share it (see ``hermes_layer``).
3. *setup*: ``packages`` and the ``setup`` commands. It is not repeated for a student without Hermes once it has
   been run on top of Hermes: that image is used, and what it has more is never looked at.
4. the leaf's entry point on top, so that a new version of the school repeats no setup.

What sets up again: the commands and packages, the image below, every manifest and lock file of the tree
(``MANIFESTS``), every file that a command names, and what matches ``cache_files``. Other files of the tree do
not: source changes with each task, dependencies do not. A command that compiles the source into the image therefore
names it in ``cache_files``; an editable install points at ``/workspace`` and needs nothing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from orchestrator import resources
from orchestrator.errors import ConfigError, ImageBuildError, ImageMissingError, RepoSetupError
from orchestrator.sandbox.hermes_layer import add_hermes, known_with_hermes
from orchestrator.sandbox.image_build import narrated
from orchestrator.sandbox.image_context import BuildContext, ContextFile, folder_files
from orchestrator.sandbox.images import add_leaf_layer, ensure_images, image_builder
from orchestrator.sandbox.repo_config import FILE, RepoConfig, parse_config, read_config
from orchestrator.sandbox.repo_tree import RepoTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.base import Engine
    from orchestrator.sandbox.image_build import ImageBuilder
    from orchestrator.settings import Settings

__all__ = ["RepoConfig", "RepoTree", "ensure_repo_image", "key_files", "parse_config", "read_config"]

MANIFESTS = (
    "*requirements*.txt",
    "*requirements*.in",
    "requirements/*.txt",
    "constraints*.txt",
    "pyproject.toml",
    "pylock*.toml",
    "setup.py",
    "setup.cfg",
    "Pipfile*",
    "poetry.lock",
    "pdm.lock",
    "uv.lock",
    "environment*.yml",
    ".python-version",
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
    ".npmrc",
    ".nvmrc",
    "go.mod",
    "go.sum",
    "go.work*",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain*",
    "Gemfile*",
    ".tool-versions",
)
"""Names of files that say what a repository depends on, wherever they lie in it."""

_VENDORED = frozenset({"node_modules", "vendor", "third_party", "testdata", "fixtures"})
_MARK = re.compile(r"school-setup: command (\d+) of \d+: (.*)")


def ensure_repo_image(
    engine: Engine,
    settings: Settings,
    config: RepoConfig,
    tree: RepoTree,
    on_line: Callable[[str], None],
    *,
    hermes: bool = False,
) -> str:
    """Return the tag of a repository's student image, built when the engine does not have it.

    Args:
        engine: Where the image must be.
        settings: How builds reach the outside.
        config: The repository's settings as of base_sha.
        tree: Its tree as of base_sha.
        on_line: Called with each line of progress.
        hermes: Whether the student's agent is Hermes.

    Raises:
        RepoSetupError: a setup command, or the repository's Dockerfile, failed; carries the end of its output.
        SandboxError: Hermes does not run on the image.
        ImageMissingError: the repository's ``image`` can't be pulled.
        ConfigError: the repository's ``dockerfile`` does not exist.
    """
    if not config.has_image and not hermes:
        return ensure_images(engine, settings, ["student"], on_line)["student"]
    builder = image_builder(engine, settings, on_line)
    if config.image or config.dockerfile:
        parent = _adopt(builder, _own_image(builder, config, tree))
    else:
        parent = ensure_images(engine, settings, ["tools"], on_line)["tools"]
    name = "repo" if config.has_image else "student-hermes"
    below = add_hermes(engine, settings, parent, on_line) if hermes else parent
    if config.packages or config.setup:
        setup = _Setup(builder, config, tree)
        other = None if hermes or setup.is_built(parent) else known_with_hermes(builder, settings, parent)
        below = setup.ensure(other if other and setup.is_built(other) else below)
    return add_leaf_layer(builder, name, below)


def key_files(config: RepoConfig, tree: RepoTree) -> tuple[str, ...]:
    """Return the paths whose content decides whether the setup runs again."""
    named = {word for command in config.setup for word in _words(command)}
    wanted = []
    for path in tree.paths():
        pure = PurePosixPath(path)
        is_manifest = not _VENDORED.intersection(pure.parts) and any(
            fnmatch.fnmatchcase(pure.name, pattern) or fnmatch.fnmatchcase(path, pattern) for pattern in MANIFESTS
        )
        if is_manifest or path in named or any(_matches(path, pattern) for pattern in config.cache_files):
            wanted.append(path)
    return tuple(sorted(wanted))


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern in which ``**/`` also stands for no folder, and ``*`` for any characters."""
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, pattern.replace("**/", ""))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # a quote is open: the shell will say so when the command runs
        words = command.split()
    return [word.removeprefix("./") for word in words]


def _digest_of(paths: tuple[str, ...], tree: RepoTree) -> str:
    """Return a digest of these files; git's own names for their contents spare a process for each."""
    ids = tree.ids()
    named = [(path, ids.get(path) or hashlib.sha256(tree.read(path) or b"").hexdigest()) for path in paths]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def _own_image(builder: ImageBuilder, config: RepoConfig, tree: RepoTree) -> str:
    """Return the image that the repository names, pulled or built from its Dockerfile."""
    if config.image:
        if builder.engine.image(config.image) is None:
            with narrated("repo", builder.on_line) as say:
                say(f"pulling {config.image}, the image that {config.image_named_by} names")
                try:
                    builder.engine.pull(config.image, on_line=say)
                except ImageMissingError as error:
                    raise ImageMissingError(
                        f"{config.image_named_by} names the image {config.image}, and it can't be pulled: "
                        f"{error.message}",
                        next_step="Correct the name, or load the image with `docker load`.",
                    ) from error
        return config.image
    if tree.read(config.dockerfile) is None:
        raise ConfigError(
            f"{FILE} names the Dockerfile {config.dockerfile}, and the repository has no such file at this commit.",
            next_step="Correct student.dockerfile, or commit the file.",
        )
    digest = _digest_of((config.dockerfile, *key_files(config, tree)), tree)[:12]
    tag = f"school/repo-own:{digest}"
    if builder.engine.image(tag) is None:
        with narrated("repo", builder.on_line) as say:
            say(f"building {config.dockerfile}")
            try:
                builder.build(tree.archive(), tag, say, dockerfile=config.dockerfile)
            except ImageBuildError as error:
                raise RepoSetupError(
                    f"The repository's Dockerfile {config.dockerfile} can't be built: {error.message}",
                    log_tail=error.log_tail,
                    next_step=f"Try it: docker build -f {config.dockerfile} .",
                ) from error
    return tag


def _adopt(builder: ImageBuilder, image: str) -> str:
    images = resources.share("images")
    files = (
        _as_dockerfile("adopt"),
        *(file for file in folder_files(images / "repo") if file.path == "adopt.sh"),
        *(file for file in folder_files(images / "base") if file.path == "install_ca.py"),
        ContextFile("ca.pem", builder.route.ca),
    )
    try:
        return builder.layer("repo-adopted", BuildContext(files), image)
    except ImageBuildError as error:
        raise RepoSetupError(
            f"The image {image} can't be made fit for a student: {_reason(error, 'school-adopt: ')}",
            log_tail=error.log_tail,
            next_step="Use an image that is Debian- or Alpine-like and offers Python 3.11 or later.",
        ) from error


class _Setup:
    """The setup of one repository, to be run on one image or another.

    The tree itself is added to the build, and left out of what is compared: see the module's text.
    """

    def __init__(self, builder: ImageBuilder, config: RepoConfig, tree: RepoTree) -> None:
        self._builder, self._config, self._tree = builder, config, tree
        names = {"packages.sh", "run_setup.py"}
        self._plan = {"commands": list(config.setup), "version": ""}  # a new version alone is no reason to repeat it
        self._files = (
            _as_dockerfile("setup"),
            *(file for file in folder_files(resources.share("images") / "repo") if file.path in names),
            ContextFile("packages.txt", "".join(f"{name}\n" for name in config.packages).encode()),
            ContextFile("setup.json", json.dumps(self._plan).encode()),
            ContextFile("keys.json", _digest_of(key_files(config, tree), tree).encode()),
        )

    def is_built(self, parent: str) -> bool:
        """Whether the engine has its result on top of this image."""
        return self._builder.engine.image(self._tag(parent)) is not None

    def ensure(self, parent: str) -> str:
        """Run it on top of an image unless that was done; return the result's tag.

        Raises:
            RepoSetupError: a command failed.
        """
        tag = self._tag(parent)
        if self.is_built(parent):
            return tag
        added = (
            *(file for file in self._files if file.path != "setup.json"),
            ContextFile("setup.json", json.dumps({**self._plan, "version": self._tree.version}).encode()),
            ContextFile("tree.tar", self._tree.archive()),
        )
        with narrated("setup", self._builder.on_line) as say:
            say(f"building {tag}: with network, without secrets")
            if self._config.packages:
                say(f"will install: {' '.join(self._config.packages)}")
            for command in self._config.setup:
                say(f"will run: {command}")
            try:
                self._builder.build(BuildContext(added).archive(), tag, say, parent=parent)
            except ImageBuildError as error:
                raise _setup_error(error) from error
        return tag

    def _tag(self, parent: str) -> str:
        return self._builder.tag("repo-setup", BuildContext(self._files), parent)


def _setup_error(error: ImageBuildError) -> RepoSetupError:
    started = _MARK.findall(error.log_tail)
    ended = re.findall(r"school-setup: command \d+ ended with (\d+)", error.log_tail)
    if started and ended:
        what = f"Setup command {started[-1][0]} of {FILE} ended with {ended[-1]}: {started[-1][1]}"
    elif ended:
        what = f"A setup command of {FILE} ended with {ended[-1]}"
    else:
        what = f"The setup of {FILE} failed: {_reason(error, 'school-setup: ')}"
    return RepoSetupError(
        what,
        log_tail=error.log_tail,
        next_step="The end of its output says why. Commands run as root in /workspace with network; distribution "
        "packages go into student.packages.",
    )


def _reason(error: ImageBuildError, mark: str) -> str:
    """Return the last line that our own scripts wrote, else the engine's words."""
    lines = [line for line in error.log_tail.splitlines() if mark in line]
    return lines[-1].partition(mark)[2] if lines else error.message


def _as_dockerfile(variant: str) -> ContextFile:
    return ContextFile("Dockerfile", (resources.share("images") / "repo" / f"{variant}.dockerfile").read_bytes())
