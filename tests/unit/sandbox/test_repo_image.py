"""When a repository's image is built again, on the engine in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.fake import FakeEngine
from orchestrator.errors import ConfigError, ImageBuildError, ImageMissingError, RepoSetupError
from orchestrator.sandbox.repo_config import RepoConfig
from orchestrator.sandbox.repo_image import ensure_repo_image, key_files
from orchestrator.settings import load_settings

PYTHON = {"pyproject.toml": "[project]\nname='d'\n", "src/d.py": "x = 1\n", "tools/deps.sh": "true\n"}
SETUP = RepoConfig(setup=("python3 -m pip install -e .",))


class Bench:
    """An engine in memory, and what was built on it since the last look."""

    def __init__(self, settings) -> None:
        self.engine = FakeEngine({"base:1": lambda run: 0, "own:1": lambda run: 0})
        self.settings = settings

    def ensure(self, config, tree, *, hermes: bool = False) -> str:
        return ensure_repo_image(self.engine, self.settings, config, tree, lambda line: None, hermes=hermes)

    def built(self) -> list[str]:
        names = [
            about.partition(":")[0].removeprefix("school/") for verb, about in self.engine.calls if verb == "build"
        ]
        self.engine.calls.clear()
        return names


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("SCHOOL_HOME", str(tmp_path))
    return Bench(load_settings(base_image="base:1"))


def test_a_repository_that_asks_for_nothing_gets_the_plain_student(bench, tree):
    assert bench.ensure(RepoConfig(verify="make"), tree(PYTHON)).startswith("school/student:")


def test_setup_is_run_once_for_the_same_dependencies(bench, tree):
    first = bench.ensure(SETUP, tree(PYTHON))
    assert bench.built() == ["base", "tools", "repo-setup", "repo"]
    assert bench.ensure(SETUP, tree(PYTHON)) == first
    assert bench.built() == []


def test_a_change_of_source_repeats_no_setup(bench, tree):
    first = bench.ensure(SETUP, tree(PYTHON))
    assert bench.ensure(SETUP, tree({**PYTHON, "src/d.py": "x = 2\n"}, version="9")) == first


def test_hermes_lies_below_the_setup_and_is_shared_by_repositories(bench, tree):
    bench.ensure(SETUP, tree(PYTHON), hermes=True)
    assert bench.built() == ["base", "tools", "hermes", "with-hermes", "repo-setup", "repo"]
    bench.ensure(RepoConfig(setup=("make deps",)), tree({"Makefile": "deps:\n"}), hermes=True)
    assert bench.built() == ["repo-setup", "repo"]
    assert bench.ensure(RepoConfig(), tree({}), hermes=True).startswith("school/student-hermes:")
    assert bench.built() == ["student-hermes"]


def test_a_setup_that_was_run_over_hermes_is_not_run_again_for_another_agent(bench, tree):
    with_hermes = bench.ensure(SETUP, tree(PYTHON), hermes=True)
    bench.built()
    assert bench.ensure(SETUP, tree(PYTHON)) == with_hermes
    assert bench.built() == []


def test_without_hermes_its_layer_is_not_built(bench, tree):
    plain = bench.ensure(SETUP, tree(PYTHON))
    bench.built()
    assert bench.ensure(SETUP, tree(PYTHON), hermes=True) != plain
    assert bench.ensure(SETUP, tree(PYTHON)) == plain  # an image that is there stays in use


def test_the_commands_are_shown_before_they_are_run(bench, tree):
    bench.ensure(RepoConfig(), tree(PYTHON))
    said: list[str] = []
    bench.engine.fail("build", ImageBuildError("failed", log_tail=""))
    config = RepoConfig(setup=("make deps",), packages=("libpq-dev",))
    with pytest.raises(RepoSetupError):
        ensure_repo_image(bench.engine, bench.settings, config, tree(PYTHON), said.append)
    assert [line for line in said if "will" in line] == [
        "[setup] will install: libpq-dev",
        "[setup] will run: make deps",
    ]


@pytest.mark.parametrize(
    ("config", "files"),
    [
        (SETUP, {**PYTHON, "pyproject.toml": "[project]\nname='e'\n"}),
        (SETUP, {**PYTHON, "sub/requirements-dev.txt": "x\n"}),
        (RepoConfig(setup=("python3 -m pip install -e .", "true")), PYTHON),
        (RepoConfig(setup=SETUP.setup, packages=("libpq-dev",)), PYTHON),
    ],
)
def test_a_change_of_dependencies_repeats_the_setup(bench, tree, config, files):
    first = bench.ensure(SETUP, tree(PYTHON))
    bench.built()
    assert bench.ensure(config, tree(files)) != first
    assert bench.built() == ["repo-setup", "repo"]


def test_contents_that_git_has_a_name_for_are_not_read(bench, tree):
    read: list[str] = []

    def named(oid: str):
        plain = tree(PYTHON)
        return replace(
            plain, ids=lambda: {"pyproject.toml": oid}, read=lambda path: read.append(path) or plain.read(path)
        )

    first = bench.ensure(SETUP, named("a1"))
    assert bench.ensure(SETUP, named("a1")) == first
    assert bench.ensure(SETUP, named("b2")) != first
    assert read == []


def test_an_own_image_is_adopted_and_then_set_up(bench, tree):
    bench.ensure(RepoConfig(image="own:1", setup=("true",)), tree(PYTHON))
    assert bench.built() == ["repo-adopted", "repo-setup", "repo"]


def test_an_own_image_that_can_not_be_pulled_is_named(bench, tree):
    with pytest.raises(ImageMissingError, match="names the image absent:1"):
        bench.ensure(RepoConfig(image="absent:1"), tree(PYTHON))


def test_the_option_is_named_when_it_named_the_image(bench, tree):
    with pytest.raises(ImageMissingError, match="--image names the image absent:1"):
        bench.ensure(RepoConfig(image="absent:1", image_named_by="--image"), tree(PYTHON))


def test_an_own_dockerfile_is_built_from_the_tree_and_adopted(bench, tree):
    config = RepoConfig(dockerfile="ci/Dockerfile")
    files = {**PYTHON, "ci/Dockerfile": "FROM own:1\n"}
    first = bench.ensure(config, tree(files))
    assert bench.built() == ["repo-own", "repo-adopted", "repo"]
    assert bench.ensure(config, tree({**files, "ci/Dockerfile": "FROM own:1\nRUN true\n"})) != first


def test_a_dockerfile_that_is_not_there_is_named(bench, tree):
    with pytest.raises(ConfigError, match="ci/Dockerfile"):
        bench.ensure(RepoConfig(dockerfile="ci/Dockerfile"), tree(PYTHON))


def test_a_failing_command_is_named_with_the_end_of_its_log(bench, tree):
    bench.ensure(RepoConfig(), tree(PYTHON))
    # as the engine (20.10) and images/repo/run_setup.py wrote it
    log = (
        "school-setup: command 1 of 2: true\nschool-setup: command 1 took 0 s\n"
        "school-setup: command 2 of 2: pip install no-such-thing\n"
        "ERROR: No matching distribution found for no-such-thing\nschool-setup: command 2 ended with 1\n"
    )
    bench.engine.fail("build", ImageBuildError("The command '/bin/sh -c …' returned a non-zero code: 1", log_tail=log))
    with pytest.raises(RepoSetupError, match=r"Setup command 2 of \.school\.toml ended with 1: pip install") as caught:
        bench.ensure(RepoConfig(setup=("true", "pip install no-such-thing")), tree(PYTHON))
    assert "No matching distribution" in caught.value.log_tail


def test_files_that_decide_are_manifests_named_files_and_what_the_repository_adds(tree):
    files = {
        **PYTHON,
        "requirements/dev.txt": "",
        "web/package-lock.json": "",
        "vendor/x/package.json": "",
        "src/deep/fast.c": "",
        "docs/requirements.md": "",
    }
    config = RepoConfig(setup=("sh ./tools/deps.sh", "echo 'open"), cache_files=("src/**/*.c",))
    assert key_files(config, tree(files)) == (
        "pyproject.toml",
        "requirements/dev.txt",
        "src/deep/fast.c",
        "tools/deps.sh",
        "web/package-lock.json",
    )
