"""What is reported of a change when the check runs what the student wrote (R-39)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.leaf.verify_scope import MAX_SHOWN, Touched, lines, touched

PYTEST = "python3 -m pytest -q"


@pytest.mark.parametrize(
    ("command", "path", "status"),
    [
        (PYTEST, "conftest.py", "A"),
        (PYTEST, "deep/below/conftest.py", "M"),
        (PYTEST, "pyproject.toml", "M"),
        (PYTEST, "setup.cfg", "A"),
        (PYTEST, "tests/test_a.py", "D"),
        (PYTEST, "tests/test_a.py", "M"),
        (PYTEST, "pytest.py", "A"),
        (PYTEST, "pytest/__init__.py", "A"),
        (PYTEST, "sitecustomize.py", "A"),
        (PYTEST, "evil.pth", "A"),
        ("python3 -m unittest -q", "unittest.py", "A"),
        ("python3 -m unittest -q", "unittest/__init__.py", "A"),
        ("python3 -m unittest -q", "json.py", "A"),
        ("python3 scripts/check.py", "scripts/check.py", "M"),
        ("./scripts/check.sh", "scripts/check.sh", "M"),
        ("sh -c 'cd x && ./scripts/run'", "scripts/run", "T"),
        ("python3 -m tools.check", "tools/check.py", "M"),
        ("make test", "Makefile", "M"),
        ("make -C sub test", "sub/rules.mk", "A"),
        ("npm test", "package.json", "M"),
        ("npm test", "web/jest.config.ts", "A"),
        ("npm test", ".npmrc", "A"),
        ("npm test", "src/__tests__/a.js", "D"),
        ("npm test", "src/a.spec.ts", "M"),
        ("go test ./...", "go.mod", "M"),
        ("go test ./...", "pkg/a_test.go", "D"),
        ("cargo test", "build.rs", "A"),
        ("cargo test", ".cargo/config.toml", "A"),
        ("mvn -q test", "src/test/java/ATest.java", "M"),
        ("./ci/all", "ci/all", "D"),
        ("sh 'unbalanced", "Makefile", "A"),
    ],
)
def test_what_steers_the_check_is_named(command, path, status):
    assert [one.path for one in touched(command, [(path, status)])] == [path]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("src/stats.py", "M"),
        ("tests/test_new.py", "A"),
        ("README.md", "M"),
        ("src/json.py", "A"),
        ("docs/make.md", "A"),
    ],
)
def test_ordinary_work_is_not(path, status):
    assert touched(PYTEST, [(path, status)]) == ()


def test_without_a_check_there_is_nothing_to_steer():
    assert touched(None, [("conftest.py", "A")]) == ()


def test_many_are_shown_in_part_and_counted():
    found = touched(PYTEST, [(f"d{number}/conftest.py", "A") for number in range(MAX_SHOWN + 5)])
    assert lines(found)[-1] == "and 5 more"
    assert lines((Touched("a", "D", "why"),)) == ["a was deleted: why"]


@given(st.text(), st.lists(st.tuples(st.text(), st.sampled_from("AMDT"))))
def test_any_command_and_any_names_are_taken(command, changes):
    assert len(touched(command, changes)) <= len(changes)
