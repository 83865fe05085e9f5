"""The catalogue, and the runs from inside that many attacks share: one container tries dozens, each judged apart."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CATALOGUE = tomllib.loads((HERE / "catalogue.toml").read_text(encoding="utf-8"))["attack"]


def script(name: str, *only: str) -> str:
    """Return the shell command that carries out a script of attacks, or some of them, with the container's own Python."""
    parts = ["mkdir -p /tmp/attacks"]
    for part in ("harness", name):
        text = (HERE / "inside" / f"{part}.py").read_text(encoding="utf-8")
        parts.append(f"cat > /tmp/attacks/{part}.py <<'END_OF_ATTACKS'\n{text}END_OF_ATTACKS")
    start = f"import sys; sys.path.insert(0, '/tmp/attacks'); import harness, {name}; harness.main({only!r})"
    return "\n".join([*parts, f'python3 -c "{start}"\n'])


def verdicts(output: str) -> dict[str, dict]:
    """Return what a script said of each attack."""
    rows = [json.loads(line.removeprefix("ATTACK ")) for line in output.splitlines() if line.startswith("ATTACK ")]
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="session")
def catalogue() -> list[dict]:
    """All entries."""
    return CATALOGUE


@pytest.fixture(scope="session")
def inside():
    """The functions above, for test modules (which can't import a conftest under importlib mode)."""
    return type("Inside", (), {"script": staticmethod(script), "verdicts": staticmethod(verdicts)})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that takes ``attack_id`` the entries of the catalogue that name it."""
    if "attack_id" in metafunc.fixturenames:
        prefix = f"tests/escape/{Path(metafunc.definition.path).name}::{metafunc.function.__name__}["
        ids = [entry["id"] for entry in CATALOGUE if entry["test"].startswith(prefix)]
        metafunc.parametrize("attack_id", ids, ids=ids)
