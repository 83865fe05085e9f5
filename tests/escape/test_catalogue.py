"""The catalogue and the tests say the same."""

import ast
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FAMILIES = {"git", "files", "kernel", "network", "judgment", "secrets"}
NOT_ATTACKS = {"test_catalogue.py", "test_defences_off.py"}
ABOUT_THE_RUN = re.compile(
    r"test_(every_attack_|no_trap_sprang|nothing_survives|the_budget_was|refusals_are_logged|the_gate_goes_on|everything_was_looked|files_with_secrets)"
)
"""Tests that look at a run as a whole, not at one attack."""


def functions(path):
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_entry_is_whole(catalogue):
    for entry in catalogue:
        assert set(entry) - {"seen"} == {"id", "family", "tries", "held_by", "test"}, entry
        assert entry["family"] in FAMILIES
        assert all(value.strip() for value in entry.values())
        assert re.fullmatch(r"[a-z0-9-]+", entry["id"])


def test_ids_are_unique_and_every_family_has_several(catalogue):
    assert not [name for name, count in Counter(entry["id"] for entry in catalogue).items() if count > 1]
    assert len(catalogue) >= 60
    assert min(Counter(entry["family"] for entry in catalogue).values()) >= 8


def test_every_entry_has_its_test(catalogue):
    for entry in catalogue:
        path, name = entry["test"].split("::", 1)
        assert name.partition("[")[0] in functions(ROOT / path), entry["test"]
        if name.endswith(f"[{entry['id']}]"):
            assert f'"{entry["id"]}"' in "".join(file.read_text(encoding="utf-8") for file in HERE.rglob("*.py")), (
                entry["id"]
            )


def test_every_test_of_an_attack_is_in_the_catalogue(catalogue):
    listed = {entry["test"].partition("[")[0] for entry in catalogue}
    for path in HERE.glob("test_*.py"):
        if path.name in NOT_ATTACKS:
            continue
        for name in functions(path):
            if name.startswith("test_") and not ABOUT_THE_RUN.match(name):
                assert f"tests/escape/{path.name}::{name}" in listed, name
