"""What `school setup --repo` proposes; each proposal must be a valid ``.school.toml``."""

from __future__ import annotations

import json

import pytest

from orchestrator.sandbox.repo_config import RepoConfig, parse_config
from orchestrator.sandbox.repo_proposal import propose

PIP = "python3 -m pip install"
PYTEST = "import pytest\n\ndef test_a(): ...\n"


def proposal(tree, files) -> RepoConfig:
    return parse_config(propose(tree(files)))


def test_a_python_project_is_installed_editable_with_its_test_extra(tree):
    text = '[project]\nname = "d"\n[project.optional-dependencies]\ntest = ["pytest"]\ndocs = ["sphinx"]\n'
    config = proposal(tree, {"pyproject.toml": text, "tests/test_a.py": PYTEST})
    assert config.setup == (f"{PIP} --use-pep517 -e '.[test]'",)
    assert config.verify == "python3 -m pytest -q"


def test_dependency_groups_are_resolved_because_older_pips_do_not_know_them(tree):
    text = (
        '[project]\nname = "d"\n[dependency-groups]\ndev = ["ruff", {include-group = "base"}]\n'
        'base = ["pytest>=8 ; python_version < \'4\'", {include-group = "dev"}]\n'
    )
    config = proposal(tree, {"pyproject.toml": text, "tests/test_a.py": PYTEST})
    assert config.setup[1] == f"""{PIP} 'ruff' 'pytest>=8 ; python_version < "4"'"""


def test_requirements_files_are_installed_and_pytest_is_added_when_nothing_brings_it(tree):
    files = {"requirements.txt": "flask\n", "requirements-dev.txt": "black\n", "test_a.py": PYTEST}
    config = proposal(tree, files)
    assert config.setup == (f"{PIP} -r requirements.txt", f"{PIP} -r requirements-dev.txt", f"{PIP} pytest")


def test_where_tests_have_requirements_of_their_own_those_of_development_are_left_out(tree):
    files = {"requirements/dev.txt": "tox\n", "requirements/tests.txt": "pytest==8\n", "test_a.py": PYTEST}
    assert proposal(tree, files).setup == (f"{PIP} -r requirements/tests.txt",)
    text = '[project]\nname = "d"\n[project.optional-dependencies]\ndev = ["tox"]\ntesting = ["pytest"]\n'
    config = proposal(tree, {"pyproject.toml": text, "test_a.py": PYTEST})
    assert config.setup == (f"{PIP} --use-pep517 -e '.[testing]'",)


def test_extras_are_found_in_setup_cfg_too(tree):
    text = "[metadata]\nname = d\n[options.extras_require]\ndev =\n\ttox\ntesting =\n\tpytest\n\tpytest-benchmark\n"
    config = proposal(tree, {"setup.cfg": text, "setup.py": "", "test_a.py": PYTEST})
    assert config.setup == (f"{PIP} --use-pep517 -e '.[testing]'",)


@pytest.mark.parametrize("text", ["[options.extras_require\n", "no section\n", "[a]\nx = %(y)s\n"])
def test_a_broken_setup_cfg_does_not_stop_the_proposal(tree, text):
    assert proposal(tree, {"setup.cfg": text}).setup == (f"{PIP} --use-pep517 -e .",)


def test_a_plugin_of_pytest_is_not_pytest(tree):
    files = {"requirements.txt": "pytest-cov\n", "test_a.py": PYTEST}
    assert proposal(tree, files).setup[-1] == f"{PIP} pytest"


def test_an_extension_is_compiled_again_by_the_check(tree):
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["setuptools>=70"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "d"\n',
        "setup.py": "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('d', ['d.c'])])\n",
        "test_a.py": PYTEST,
    }
    config = proposal(tree, files)
    assert config.setup[:2] == (f"{PIP} 'setuptools>=70'", f"{PIP} --use-pep517 -e .")
    assert config.verify == "python3 setup.py -q build_ext --inplace && python3 -m pytest -q"


def test_unittest_needs_nothing(tree):
    config = proposal(tree, {"a.py": "", "tests/test_a.py": "import unittest\nclass T(unittest.TestCase): ...\n"})
    assert (config.setup, config.verify) == ((), "python3 -m unittest discover -v")


@pytest.mark.parametrize(
    ("lock", "setup"),
    [
        ("package-lock.json", ("npm ci",)),
        ("yarn.lock", ("npm install -g yarn", "yarn install --frozen-lockfile")),
        (None, ("npm install --no-package-lock",)),
    ],
)
def test_node_follows_the_lock_file(tree, lock, setup):
    package = {"dependencies": {"a": "1"}, "scripts": {"test": "jest"}}
    files = {"package.json": json.dumps(package)} | ({lock: ""} if lock else {})
    config = proposal(tree, files)
    assert (config.packages, config.setup, config.verify) == (("nodejs", "npm"), setup, "npm test")


def test_the_test_script_of_npm_init_is_not_a_check(tree):
    package = {"scripts": {"test": 'echo "Error: no test specified" && exit 1'}}
    assert proposal(tree, {"package.json": json.dumps(package)}).verify == ""


@pytest.mark.parametrize(
    ("files", "setup"),
    [
        ({"go.mod": "module d\n\ngo 1.19\n"}, ()),
        ({"go.mod": "module d\n\nrequire example.com/x v1.0.0\n"}, ("go mod download",)),
        ({"go.mod": "module d\n\nrequire (\n)\n", "vendor/modules.txt": ""}, ()),
    ],
)
def test_go_downloads_what_is_not_vendored(tree, files, setup):
    config = proposal(tree, files)
    assert (config.packages, config.setup, config.verify) == (("golang-go",), setup, "go test ./...")


@pytest.mark.parametrize(
    ("files", "setup"),
    [
        ({"Cargo.toml": '[package]\nname = "d"\n'}, ()),
        ({"Cargo.toml": '[dependencies]\nx = "1"\n', "Cargo.lock": ""}, ("cargo fetch --locked",)),
        ({"Cargo.toml": '[dependencies]\nx = "1"\n', "vendor/x/Cargo.toml": "", ".cargo/config.toml": ""}, ()),
    ],
)
def test_rust_fetches_what_is_not_vendored(tree, files, setup):
    config = proposal(tree, files)
    assert (config.packages, config.setup, config.verify) == (("cargo",), setup, "cargo test --offline")


def test_two_languages_are_joined(tree):
    files = {"go.mod": "module d\n", "package.json": json.dumps({"scripts": {"test": "node --test"}})}
    config = proposal(tree, files)
    assert config.packages == ("nodejs", "npm", "golang-go")
    assert config.verify == "npm test && go test ./..."


def test_a_makefile_is_the_last_resort(tree):
    assert proposal(tree, {"Makefile": "all:\ncheck: all\n\ttrue\n"}).verify == "make check"


def test_nothing_recognised_is_a_comment_that_parses(tree):
    assert proposal(tree, {"README": ""}) == RepoConfig()


@pytest.mark.parametrize("broken", [{"pyproject.toml": "[["}, {"package.json": "{"}, {"Cargo.toml": "x"}])
def test_a_broken_manifest_does_not_stop_the_proposal(tree, broken):
    proposal(tree, broken)
