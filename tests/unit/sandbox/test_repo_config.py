"""``.school.toml``: what is understood, and that a mistake is named with its place."""

from __future__ import annotations

import pytest

from orchestrator.errors import ConfigError
from orchestrator.sandbox.repo_config import RepoConfig, parse_config, read_config

FULL = """\
[student]
packages = ["libpq-dev"]
setup = ["python3 -m pip install -e ."]
dockerfile = "ci/Dockerfile"
cache_files = ["src/**/*.c"]

[verify]
command = "pytest"

[objects]
mode = "reachable"
"""


def test_everything_is_read():
    assert parse_config(FULL) == RepoConfig(
        packages=("libpq-dev",),
        setup=("python3 -m pip install -e .",),
        dockerfile="ci/Dockerfile",
        cache_files=("src/**/*.c",),
        verify="pytest",
        objects="reachable",
    )


def test_a_repository_without_the_file_has_no_image_of_its_own():
    config = read_config(lambda path: None)
    assert config == RepoConfig()
    assert not config.has_image


def test_a_check_alone_needs_no_image():
    assert not parse_config('[verify]\ncommand = "make"\n').has_image


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ('[student]\nsetup = ["a"]\nimge = "x"\n', "line 3", "student.imge is not known"),
        ('[verify]\ncommand = "a"\n\n[tests]\nx = 1\n', "line 4", r"\[tests\] is not known"),
        ('[student]\nsetup = "pip install ."\n', "line 2", "must be a list"),
        ('[student]\nsetup = [""]\n', "line 2", "must be a list"),
        ("[verify]\ncommand = 7\n", "line 2", "must be a text"),
        ('[student]\nimage = "a"\ndockerfile = "b"\n', "line 3", "exclude each other"),
        ('[student]\npackages = ["gcc; rm -rf /"]\n', "line 2", "not the name of a package"),
        ('[student]\npackages = ["-o=x"]\n', "line 2", "not the name of a package"),
        ('[student]\ndockerfile = "../Dockerfile"\n', "line 2", "inside the repository"),
        ('[objects]\nmode = "none"\n', "line 2", "must be one of shared, reachable"),
        ('verify = "pytest"\n', "line 1", "must be a table"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, place, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_config(text)
    assert place in str(caught.value)


@pytest.mark.parametrize("data", [b"[student\n", b"\xff\xfe"])
def test_what_is_not_toml_is_refused(data):
    with pytest.raises(ConfigError, match=r"\.school\.toml"):
        read_config(lambda path: data)
