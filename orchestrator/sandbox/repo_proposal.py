"""A proposal of ``.school.toml`` for a repository, from the manifests in it (``school setup --repo``).

It proposes, a person decides: each line says where it comes from, and nothing counts before it is committed.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.sandbox.repo_config import FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.sandbox.repo_tree import RepoTree

# The first one that a repository has is taken; what it calls "dev" brings linters and documentation tools as well.
_TEST_EXTRAS = ("test", "tests", "testing", "dev", "develop")
_TEST_REQUIREMENTS = (
    "requirements-test.txt",
    "requirements-tests.txt",
    "requirements_test.txt",
    "test-requirements.txt",
    "requirements/test.txt",
    "requirements/tests.txt",
    "requirements/testing.txt",
    "requirements-dev.txt",
    "requirements_dev.txt",
    "dev-requirements.txt",
    "requirements/dev.txt",
)
_PIP = "python3 -m pip install"
_NO_TEST = "no test specified"  # what `npm init` writes


@dataclass(slots=True)
class _Part:
    """What one language asks for."""

    packages: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    verify: str = ""
    notes: list[str] = field(default_factory=list)


def propose(tree: RepoTree) -> str:
    """Return the text of a ``.school.toml`` that fits the repository's manifests.

    The text parses as one, also when nothing was recognised (then all of it is comment).
    """
    paths = frozenset(tree.paths())
    parts = [part for part in (_python(tree, paths), _node(tree, paths), _go(tree, paths), _rust(tree, paths)) if part]
    notes = [note for part in parts for note in part.notes]
    verify = " && ".join(part.verify for part in parts if part.verify)
    target = re.search(rb"^(test|check):", tree.read("Makefile") or b"", re.MULTILINE)
    if not verify and target:
        verify = f"make {target[1].decode()}"
    return _write(
        [package for part in parts for package in part.packages],
        [command for part in parts for command in part.setup],
        verify,
        notes,
    )


def _write(packages: Sequence[str], setup: Sequence[str], verify: str, notes: Sequence[str]) -> str:
    lines = [f"# {FILE}: what this repository's students and its check need. It counts once it is committed.", ""]
    lines += [f"# {note}" for note in notes]
    if packages or setup:
        lines.append("[student]")
        if packages:
            lines.append(f"packages = {_strings(packages)}  # of the image's distribution")
        if setup:
            lines.append(
                "# Run in the tree at /workspace, as root, with network, without secrets, when the image is built."
            )
            lines.append(f"setup = {_strings(setup)}")
        lines.append("")
    else:
        lines += [
            "# No dependencies were recognised: the plain student image is used.",
            "# [student]",
            "# setup = []",
            "",
        ]
    if verify:
        lines += [
            "[verify]",
            "# Run on the result in a clean container without network.",
            f"command = {_string(verify)}",
        ]
    else:
        lines += ["# No test command was recognised.", "# [verify]", '# command = "make test"']
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a TOML basic string


def _strings(items: Sequence[str]) -> str:
    if len(items) == 1:
        return f"[{_string(items[0])}]"
    return "[\n" + "".join(f"    {_string(item)},\n" for item in items) + "]"


def _toml(tree: RepoTree, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads((tree.read(path) or b"").decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


# -- Python ---------------------------------------------------------------------------------------------------------


def _python(tree: RepoTree, paths: frozenset[str]) -> _Part | None:
    part = _Part()
    project = _toml(tree, "pyproject.toml")
    extras = _extras(tree, project)
    if "uv.lock" in paths or "poetry.lock" in paths or "pdm.lock" in paths:
        part.notes.append("The lock file is not used: pip resolves anew. Name the lock's own tool to have it used.")
    part.setup += [f"{_PIP} -r {name}" for name in _requirements(paths)]
    installable = project.get("project") or project.get("tool", {}).get("poetry") or {"setup.py", "setup.cfg"} & paths
    if compiles := bool(installable) and _compiles(tree, project):
        # what the build needs is asked for by pip in a place of its own, and the check builds again
        needed = project.get("build-system", {}).get("requires") or ["setuptools"]
        part.setup.append(f"{_PIP} {' '.join(_quoted(str(requirement)) for requirement in needed)}")
        part.notes.append("It compiles an extension: the check compiles it again, from what the student left.")
    if installable:
        # Editable, so that /workspace is what is imported; by PEP 517, so that no metadata stays in the tree.
        extra = next((name for name in _TEST_EXTRAS if name in extras), "")
        target = f"'.[{extra}]'" if extra else "."
        part.setup.append(f"{_PIP} --use-pep517 -e {target}")
    if group := _group(project.get("dependency-groups", {})):
        part.setup.append(f"{_PIP} {' '.join(_quoted(requirement) for requirement in group)}")
    if not part.setup and not any(path.endswith(".py") for path in paths):
        return None
    if _uses_pytest(tree, paths, project):
        if not _names_pytest(tree, paths, project):
            part.setup.append(f"{_PIP} pytest")
        part.verify = "python3 -m pytest -q"
    elif any(re.search(r"(^|/)test_[^/]*\.py$", path) for path in paths):
        part.verify = "python3 -m unittest discover -v"
    if compiles and part.verify:
        part.verify = f"python3 setup.py -q build_ext --inplace && {part.verify}"
    return part


def _requirements(paths: frozenset[str]) -> list[str]:
    tests = next((name for name in _TEST_REQUIREMENTS if name in paths), "")
    return [name for name in ("requirements.txt", tests) if name in paths]


def _extras(tree: RepoTree, project: dict[str, Any]) -> dict[str, str]:
    """Return the extras that the project offers, each with its requirements as text."""
    offered = project.get("project", {}).get("optional-dependencies", {})
    if isinstance(offered, dict) and offered:
        return {str(name): str(requirements) for name, requirements in offered.items()}
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read_string((tree.read("setup.cfg") or b"").decode("utf-8", "replace"))
    except configparser.Error:
        return {}
    return dict(config["options.extras_require"]) if "options.extras_require" in config else {}


def _compiles(tree: RepoTree, project: dict[str, Any]) -> bool:
    """Whether setuptools compiles an extension for it."""
    backend = str(project.get("build-system", {}).get("build-backend", "setuptools"))
    script = tree.read("setup.py") or b""
    return "setuptools" in backend and re.search(rb"\bext_modules\b|\bcffi_modules\b", script) is not None


def _group(groups: dict[str, Any]) -> list[str]:
    """Return the requirements of the first test group (PEP 735), resolved: older pips don't know groups."""
    name = next((name for name in _TEST_EXTRAS if name in groups), "")
    found: list[str] = []
    waiting, seen = [name], {""}
    while waiting:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for item in groups.get(current, []):
            if isinstance(item, str):
                found.append(item)
            elif isinstance(item, dict) and "include-group" in item:
                waiting.append(str(item["include-group"]))
    return found


def _quoted(requirement: str) -> str:
    return "'" + requirement.replace("'", '"') + "'"


def _uses_pytest(tree: RepoTree, paths: frozenset[str], project: dict[str, Any]) -> bool:
    if "pytest.ini" in paths or "pytest" in project.get("tool", {}) or any(p.endswith("conftest.py") for p in paths):
        return True
    if _names_pytest(tree, paths, project):
        return True
    tests = [path for path in sorted(paths) if re.search(r"(^|/)(test_[^/]*|[^/]*_test)\.py$", path)]
    return any(
        re.search(rb"^(import|from) pytest|^def test_", tree.read(path) or b"", re.MULTILINE) for path in tests[:50]
    )


def _names_pytest(tree: RepoTree, paths: frozenset[str], project: dict[str, Any]) -> bool:
    """Whether what the proposal installs brings pytest."""
    extras = _extras(tree, project)
    texts = [next((extras[name] for name in _TEST_EXTRAS if name in extras), "")]
    texts += _group(project.get("dependency-groups", {}))
    texts += [str(project.get("project", {}).get("dependencies", ""))]
    texts += [(tree.read(path) or b"").decode("utf-8", "replace") for path in _requirements(paths)]
    return any(re.search(r"^\W*pytest(?![-\w])", line, re.MULTILINE) for line in re.split(r"[\n,]", "\n".join(texts)))


# -- Node, Go, Rust -------------------------------------------------------------------------------------------------


def _node(tree: RepoTree, paths: frozenset[str]) -> _Part | None:
    if "package.json" not in paths:
        return None
    try:
        package = json.loads(tree.read("package.json") or b"{}")
    except ValueError:
        package = {}
    part = _Part(packages=["nodejs", "npm"])
    part.notes.append("node_modules is moved to /node_modules in the image, where Node and npm look for it too.")
    if any(package.get(kind) for kind in ("dependencies", "devDependencies", "optionalDependencies", "workspaces")):
        if "package-lock.json" in paths or "npm-shrinkwrap.json" in paths:
            part.setup = ["npm ci"]
        elif "pnpm-lock.yaml" in paths:
            part.setup = ["npm install -g pnpm", "pnpm install --frozen-lockfile --shamefully-hoist"]
        elif "yarn.lock" in paths:
            part.setup = ["npm install -g yarn", "yarn install --frozen-lockfile"]
        else:
            part.setup = ["npm install --no-package-lock"]
    test = str(package.get("scripts", {}).get("test", ""))
    if test and _NO_TEST not in test:
        part.verify = "npm test"
    elif any(re.search(r"(^|/)(test/.*|[^/]*\.test|[^/]*_test)\.[cm]?js$", path) for path in paths):
        part.verify = "node --test"
    return part


def _go(tree: RepoTree, paths: frozenset[str]) -> _Part | None:
    if "go.mod" not in paths:
        return None
    text = (tree.read("go.mod") or b"").decode("utf-8", "replace")
    part = _Part(packages=["golang-go"], verify="go test ./...")
    if version := re.search(r"^go (\S+)", text, re.MULTILINE):
        part.notes.append(f"go.mod asks for Go {version[1]}; where the distribution's is older, name an image with it.")
    if re.search(r"^require\b", text, re.MULTILINE) and "vendor/modules.txt" not in paths:
        part.setup = ["go mod download"]
    return part


def _rust(tree: RepoTree, paths: frozenset[str]) -> _Part | None:
    if "Cargo.toml" not in paths:
        return None
    part = _Part(packages=["cargo"], verify="cargo test --offline")
    manifest = _toml(tree, "Cargo.toml")
    minimum = manifest.get("package", {}).get("rust-version")
    if isinstance(minimum, str):
        part.notes.append(
            f"Cargo.toml asks for Rust {minimum}; where the distribution's is older, name an image with it."
        )
    vendored = any(path.startswith("vendor/") for path in paths) and ".cargo/config.toml" in paths
    needs = any(
        manifest.get(kind) or manifest.get("workspace", {}).get(kind)
        for kind in ("dependencies", "dev-dependencies", "build-dependencies", "members")
    )
    if needs and not vendored:
        part.setup = ["cargo fetch --locked" if "Cargo.lock" in paths else "cargo fetch"]
    return part
