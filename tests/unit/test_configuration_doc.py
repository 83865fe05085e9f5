"""docs/configuration.md is what the settings say."""

import importlib.util
from pathlib import Path

import pytest

from orchestrator.sandbox.repo_config import KEYS
from orchestrator.settings import UNPREFIXED, Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("configuration_doc", ROOT / "tools" / "configuration_doc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_generator_prints(generator):
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == generator.document(), "run: python tools/configuration_doc.py > docs/configuration.md"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_has_a_meaning_and_stands_on_the_page_once(generator, name):
    assert Settings.model_fields[name].description
    rows = [line for line in generator.document().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    assert f"`SCHOOL_{name.upper().removeprefix('SCHOOL_')}`" in rows[0]
    assert (f"`{name.upper()}`" in rows[0]) == (name in UNPREFIXED)


def test_every_key_of_a_repository_stands_on_the_page(generator):
    keys = {f"{section}.{key}" for section, found in KEYS.items() for key in found}
    assert keys == set(generator.REPOSITORY)
    assert all(f"| `{key}` |" in generator.document() for key in keys)


def test_every_variable_that_the_host_reads_is_named(generator):
    """Names between quotes after `environ` or `environment.get` in the host's rooms."""
    import re

    found = set()
    inside = {"agents", "teacher", "gate", "rehearsal", "review"}
    for path in (ROOT / "orchestrator").rglob("*.py"):
        if path.relative_to(ROOT / "orchestrator").parts[0] not in inside:
            pattern = r"""environ(?:ment)?(?:\.get\(|\[)["']([A-Z_]+)["']"""
            found |= set(re.findall(pattern, path.read_text(encoding="utf-8")))
    assert "DOCKER_HOST" in found
    page = generator.document()
    assert {name for name in found if f"`{name}`" not in page} - {"HOME", "PYTHONPATH", "SUDO_UID"} == set()
