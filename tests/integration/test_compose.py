"""A school brought up by docker compose is the school that the program finds (DESIGN, "One per role").

Without compose on the machine only the file is compared; tests/unit/sandbox/test_compose.py reads it back to the specs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_KIND, State
from orchestrator.engine.locate import locate
from orchestrator.gateway.gate_client import GateClient
from orchestrator.sandbox import compose, parts, standing
from orchestrator.settings import load_settings

pytestmark = pytest.mark.engine

FILE = Path(__file__).resolve().parents[2] / "compose" / "school.yaml"


def compose_command() -> list[str]:
    """Return how compose is called here; nothing when it isn't installed."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        answer = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip().removeprefix("v").startswith(("2", "3", "4", "5")):
            return command
    return []


def school_up(home) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SCHOOL_")}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", "up"],
        capture_output=True,
        text=True,
        check=False,
        env=clean | {"SCHOOL_HOME": str(home.root)},
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def project(engine, home, tmp_path):
    """Run compose on this home's project; everything of it is removed at the end, volume and network too."""
    settings = load_settings(school_home=home.root)
    values = compose.prepare(engine, home, settings, print)
    env = tmp_path / "school.env"
    env.write_text(compose.env_file(values), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SCHOOL_")}

    def run(*arguments: str) -> str:
        argv = [*compose_command(), "--env-file", str(env), "-f", str(FILE), *arguments]
        host = {"DOCKER_HOST": locate().endpoint}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=clean | host)
        assert done.returncode == 0, done.stderr
        return done.stdout

    images = {"service": values["SCHOOL_SERVICE_IMAGE"], "omniroute": values["SCHOOL_OMNIROUTE_IMAGE"]}
    yield run, parts.PartsPlan(home, settings, images, values["SCHOOL_USERNS_MODE"])
    if compose_command():
        run("down", "--volumes", "--timeout", "2")


def test_what_compose_brings_up_is_found_and_kept(engine, home, project):
    run, plan = project
    if not compose_command():
        assert FILE.read_text(encoding="utf-8") == compose.document()
        return
    run("up", "--detach")
    found = {container.labels[LABEL_KIND]: container for container in standing.parts(engine, home)}
    assert set(found) == {kind.value for kind in standing.STANDING}
    assert {container.state for container in found.values()} == {State.RUNNING}
    for kind, part in compose.wanted(plan).items():
        kept = standing.ensure(engine, home, part, idle=lambda: True)
        assert kept.id == found[kind.value].id, f"{kind} was replaced"
        assert kept.name == part.spec.name
    # compose only starts them: `school up` has to configure the gateway and hand out the teachers' grants
    school_up(home)
    assert {container.id for container in standing.parts(engine, home)} == {part.id for part in found.values()}
    granted = {grant["grant"] for grant in GateClient(home).grants()}
    assert granted == {parts.teacher_grant(teacher) for teacher in parts.TEACHERS}
