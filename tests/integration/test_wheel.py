"""The package as it is installed: from a wheel, in an environment of its own, outside any checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from orchestrator import resources
from orchestrator.sandbox import images

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("images", "compose", "config")

LOOK = """
import json
from pathlib import Path
from orchestrator import resources
from orchestrator.sandbox import images
print(json.dumps({
    "package": str(resources.package()),
    "files": {
        name: sorted(str(p.relative_to(resources.share(name))) for p in resources.share(name).rglob("*")
                     if p.is_file() and "__pycache__" not in p.parts)
        for name in ("images", "compose", "config")
    },
    "digests": {name: images._context(name).digest({}) for name in images.RECIPES},
}))
"""


def run(*argv: object, cwd: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, capture_output=True, text=True, check=False, env=kept | environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Wheel and source distribution."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", out, cwd=ROOT)
    return out


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The bin folder of a fresh environment with the wheel; what it depends on is borrowed from this one."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    (wheel,) = built.glob("*.whl")
    options = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *options, wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


@pytest.fixture(scope="module")
def found(installed, tmp_path_factory) -> dict:
    return json.loads(run(installed / "python", "-c", LOOK, cwd=tmp_path_factory.mktemp("elsewhere")))


def test_the_console_script_works_outside_the_checkout(installed, tmp_path):
    assert run(installed / "school", "--version", cwd=tmp_path).split() == ["school", "0.1.0"]
    assert "spawn" in run(installed / "school", "--help", cwd=tmp_path)
    assert "no bead" in run(installed / "school", "ps", cwd=tmp_path, SCHOOL_HOME=str(tmp_path / "home"))


def test_it_is_the_installed_package_that_answers(found, installed):
    assert Path(found["package"]).is_relative_to(installed.parent)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_wheel_carries_every_shared_file(found, name):
    tracked = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", name, cwd=ROOT).split("\0")
    here = {file.removeprefix(f"{name}/") for file in tracked if file and (ROOT / file).is_file()}
    assert here
    assert set(found["files"][name]) == here


def test_an_image_built_from_a_wheel_is_the_checkout_s_image(found):
    """Same digest: same sources, same Dockerfiles, same executable bits. So neither builds again what the other built."""
    assert resources.package() == ROOT / "orchestrator"
    assert found["digests"] == {name: images._context(name).digest({}) for name in images.RECIPES}


def test_the_shell_completes_commands(installed, tmp_path):
    script = run(installed / "school", "--show-completion", "bash", cwd=tmp_path)
    assert "_SCHOOL_COMPLETE=complete_bash" in script
    done = run(
        installed / "school", cwd=tmp_path, _SCHOOL_COMPLETE="complete_bash", COMP_WORDS="school sp", COMP_CWORD="1"
    )
    assert done.split() == ["spawn"]


def test_the_wheel_holds_nothing_but_the_package(built):
    import zipfile

    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"orchestrator", "agent_school-0.1.0.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".env"))]
    assert "orchestrator/py.typed" in names
    assert "agent_school-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_source_distribution_can_be_checked_and_built_from(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("pyproject.toml", "Makefile", "README.md", "LICENSE", "tools/venv.sh", "docs/configuration.md"):
        assert wanted in names
    assert {name.split("/")[0] for name in names} >= {"orchestrator", "tests", "images", "compose", "config", "docs"}
    stray = (".venv", ".git/", ".env", "build/", "dist/")
    assert not [name for name in names if name.startswith(stray) or "__pycache__" in name]
