"""What of a change has a say in the repository's own check: tests, their configuration, what the command names.

The check runs the student's files: whoever writes a ``conftest.py`` writes the test runner. No sandbox can tell a good
reason from a bad one, so nothing is refused here; it is said, to the person and to both judges, before they believe
"passed".
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SHOWN = 40

_RUNNERS = {
    "pytest": r"conftest\.py|pytest\.ini|\.pytest\.ini|tox\.ini|setup\.cfg|pyproject\.toml",
    "Python": r"sitecustomize\.py|usercustomize\.py|setup\.py|noxfile\.py|\.coveragerc|pyvenv\.cfg|"
    r"[^/]+\.(?:pth|egg-link)|tasks\.py|uv\.toml|poetry\.toml|requirements[^/]*\.txt",
    "make": r"(?:GNU|BSD)?[Mm]akefile(?:\.am|\.in)?|[^/]+\.mk|CMakeLists\.txt|[^/]+\.cmake|CTest[^/]*|meson\.build|"
    r"configure(?:\.ac)?|[Jj]ustfile|Taskfile\.ya?ml|Rakefile|SConstruct|build\.ninja|BUILD(?:\.bazel)?|WORKSPACE|\.bazelrc",
    "Node": r"package\.json|package-lock\.json|pnpm-lock\.yaml|yarn\.lock|\.npmrc|\.yarnrc(?:\.yml)?|\.mocharc[^/]*|"
    r"(?:jest|vitest|vite|babel|karma|playwright|cypress|ava|webpack|rollup|eslint)\.(?:config|conf|setup)[^/]*|"
    r"tsconfig[^/]*\.json|\.babelrc[^/]*|deno\.jsonc?|bunfig\.toml|\.swcrc",
    "Go": r"go\.mod|go\.sum|go\.work",
    "Cargo": r"Cargo\.toml|Cargo\.lock|build\.rs|rust-toolchain(?:\.toml)?|nextest\.toml",
    "the JVM": r"pom\.xml|[^/]+\.gradle(?:\.kts)?|gradle[^/]*\.properties|gradlew|mvnw|build\.sbt",
    "Ruby or PHP": r"Gemfile(?:\.lock)?|\.rspec|spec_helper\.rb|rails_helper\.rb|phpunit\.xml(?:\.dist)?|"
    r"composer\.(?:json|lock)",
    "a shell": r"\.env(?:\..*)?|\.envrc|\.bashrc|\.profile|\.tool-versions|mise\.toml",
}
_CONFIGURATION = {name: re.compile(rf"(?:^|/)(?:{pattern})$") for name, pattern in _RUNNERS.items()}
_CONFIGURATION["Cargo's configuration"] = re.compile(r"(?:^|/)\.cargo/config(?:\.toml)?$")
_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?|testdata|__snapshots__|fixtures)/|"
    r"(?:^|/)(?:test_[^/]+|[^/]+[_.-](?:test|tests|spec)\.[^/]+|[^/]+Tests?\.(?:java|kt|cs|swift)|[^/]+\.snap)$",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True)
class Touched:
    """One changed path that has a say in the check. ``status`` is git's letter (A, M, D, T)."""

    path: str
    status: str
    why: str

    def __str__(self) -> str:
        """Return it as one line; the path is a stranger's text."""
        verb = {"A": "added", "M": "changed", "D": "deleted", "T": "replaced"}.get(self.status, "changed")
        return f"{self.path} was {verb}: {self.why}"


def touched(command: str | None, changes: Iterable[tuple[str, str]]) -> tuple[Touched, ...]:
    """Return what of a change has a say in the check, in the order of the changes.

    Args:
        command: The check, as a shell takes it; nothing is found without one.
        changes: Pairs of path and git's status letter.
    """
    if not command:
        return ()
    named = _named(command)
    found = []
    for path, status in changes:
        why = _why(path, status, named)
        if why:
            found.append(Touched(path, status, why))
    return tuple(found)


def lines(found: tuple[Touched, ...]) -> list[str]:
    """Return it for people and judges, at most MAX_SHOWN lines and one that says how many more there are."""
    shown = [str(one) for one in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        shown.append(f"and {len(found) - MAX_SHOWN} more")
    return shown


def _named(command: str) -> frozenset[str]:
    """Return what the command names: its words, as paths and as modules of Python."""
    try:
        words = shlex.split(command, posix=True)
    except ValueError:  # a shell may still understand it
        words = command.split()
    names: set[str] = set()
    for word in words:
        bare = _ASSIGNMENT.sub("", word) if _ASSIGNMENT.match(word) else word
        for part in re.split(r"[;&|()<>=,:\s]+", bare):
            path = part.removeprefix("./").rstrip("/")
            if path and path not in {".", ".."}:
                names |= {path, path.replace(".", "/") + ".py"}
    return frozenset(names)


def _why(path: str, status: str, named: frozenset[str]) -> str:
    if path in named or any(path.startswith(f"{one}/") for one in named if "/" in one):
        return "the check's command names it"
    for runner, pattern in _CONFIGURATION.items():
        if pattern.search(path):
            return f"{runner} takes its configuration from it"
    module = path.removesuffix("/__init__.py").removesuffix(".py")
    if module != path and "/" not in module and (module in sys.stdlib_module_names or f"{module}.py" in named):
        return f"Python may load it in the place of its own module {module}"
    if _TEST.search(path):
        if status == "D":
            return "a test that can't fail any more"
        if status != "A":
            return "a test that was there before"
    return ""
