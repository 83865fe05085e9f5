"""The school's own images on a real engine: what is in them, and that they are built once."""

from __future__ import annotations

import pytest

from orchestrator.engine.base import LABEL_CONTENT, LABEL_HOME, ContainerSpec, Exited
from orchestrator.sandbox.image_build import LABEL_IMAGE
from orchestrator.sandbox.images import ensure_images
from orchestrator.sandbox.spec import ENTRY
from orchestrator.settings import load_settings

pytestmark = pytest.mark.engine


@pytest.fixture
def run(engine, home):
    """Run a command as a leaf would: no network, no capabilities, read-only, another uid; return code and output."""

    def start(image: str, *argv: str, **more) -> tuple[int, str]:
        number = len(engine.list({LABEL_HOME: home.id}))
        spec = ContainerSpec(
            image=image,
            name=f"school-{home.id}-probe-{number}",
            entrypoint=argv,
            labels={LABEL_HOME: home.id},
            tmpfs={"/tmp": "rw,exec", "/home/student": f"rw,exec,uid={home.uid}"},
            env={"HOME": "/home/student"},
            user=f"{home.uid}:{home.gid}",
            working_dir="/workspace",
            **more,
        )
        container = engine.create(spec)
        watch = engine.watch(container)
        try:
            engine.start(container)
            lines = [line.decode() for line in watch.lines()]
            ended = watch.wait(120)
            errors = watch.stderr_tail().decode()
        finally:
            watch.close()
            engine.remove(container)
        assert isinstance(ended, Exited)
        return ended.code, "\n".join(lines) + errors

    return start


@pytest.mark.parametrize("name", ["base", "service", "student", "omniroute"])
def test_an_image_says_what_it_is(engine, image, name):
    found = engine.image(image(name))
    assert found.labels[LABEL_IMAGE] == name
    assert image(name) == f"school/{name}:{found.labels[LABEL_CONTENT]}"


def test_a_second_call_builds_nothing_and_says_nothing(engine, image):
    first = {name: image(name) for name in ("service", "student")}
    said: list[str] = []
    assert ensure_images(engine, load_settings(), ["service", "student"], said.append) == first
    assert said == []


def test_the_student_image_has_what_an_agent_reaches_for(image, run):
    tools = [
        "git",
        "make",
        "gcc",
        "g++",
        "rg",
        "jq",
        "curl",
        "bash",
        "ps",
        "patch",
        "less",
        "file",
        "python",
        "python3",
    ]
    code, output = run(image("student"), "bash", "-ec", f"for tool in {' '.join(tools)}; do command -v $tool; done")
    assert code == 0
    assert len(output.split()) == len(tools)


def test_the_student_image_compiles_a_python_extension(image, run):
    source = "#include <Python.h>\\nint main(void) { Py_Initialize(); return 0; }\\n"
    build = 'gcc -c -x c $(python3 -c \'import sysconfig; print("-I" + sysconfig.get_path("include"))\') -o /tmp/a.o -'
    assert run(image("student"), "bash", "-ec", f"printf '{source}' | {build}") == (0, "")


def test_the_entry_point_finds_its_package_compiled(image, run):
    """A start must not compile: the root is read-only, so each start would do it again."""
    code = (
        "import sys; sys.path.insert(0, '/school/lib'); import orchestrator.bookbag as b, os; "
        "print(b.__cached__, os.path.exists(b.__cached__))"
    )
    assert run(image("student"), ENTRY[0], "-I", "-S", "-c", code)[1].endswith(".pyc True")


@pytest.mark.parametrize("room", ["orchestrator.gate", "orchestrator.rehearsal", "orchestrator.teacher"])
def test_the_service_image_can_start_each_service(image, run, room):
    code, output = run(image("service"), "python3", "-c", f"import {room}.__main__, os; os._exit(0)")
    assert (code, output) == (0, "")


def test_the_service_image_carries_the_configuration(image, run):
    assert "gateway.yaml" in run(image("service"), "ls", "/school/lib/config")[1]


def test_the_hosts_certificates_are_trusted_inside(image, run):
    """A corporate CA must work for what students and setups do over TLS."""
    from orchestrator.sandbox.build_settings import build_route

    count = build_route(load_settings(), print).ca.count(b"BEGIN CERTIFICATE")
    code, output = run(image("base"), "grep", "-c", "BEGIN CERTIFICATE", "/etc/ssl/certs/ca-certificates.crt")
    assert code == 0
    assert int(output) >= count * 0.9  # a bundle may hold a certificate twice


def test_omniroute_without_its_secrets_says_which_is_missing(image, run):
    code, output = run(image("omniroute"), "node", "/school/start.mjs")
    assert code == 78
    assert "/run/school-secrets/jwt_secret" in output


def test_the_omniroute_image_has_no_shell(engine, image, run):
    from orchestrator.errors import EngineError

    with pytest.raises(EngineError):
        run(image("omniroute"), "/bin/sh", "-c", "true")
