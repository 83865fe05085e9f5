"""Images of repositories on a real engine: the proposal is taken as it is, built, and the check is run in the result."""

from __future__ import annotations

import io
import re
import tarfile

import pytest

from orchestrator.engine.base import LABEL_HOME, ContainerSpec, Exited, Mount
from orchestrator.errors import RepoSetupError
from orchestrator.sandbox.repo_config import RepoConfig, parse_config
from orchestrator.sandbox.repo_image import ensure_repo_image
from orchestrator.sandbox.repo_proposal import propose
from orchestrator.sandbox.repo_tree import RepoTree
from orchestrator.settings import load_settings

pytestmark = pytest.mark.engine

PYTHON = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools>=64", "setuptools-scm"]\n'
    'build-backend = "setuptools.build_meta"\n[project]\nname = "demo"\ndynamic = ["version"]\n'
    'dependencies = ["markupsafe"]\n[project.optional-dependencies]\ntest = ["pytest"]\n[tool.setuptools_scm]\n',
    "src/demo/__init__.py": "import markupsafe\n\ndef safe(text):\n    return str(markupsafe.escape(text))\n",
    "tests/test_demo.py": "import demo\n\ndef test_safe():\n    assert demo.__file__.startswith('/workspace/')\n"
    "    assert demo.safe('<') == '&lt;'\n",
}


def tree_of(files: dict[str, str]) -> RepoTree:
    def archive() -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, text in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return buffer.getvalue()

    return RepoTree(lambda path: files[path].encode() if path in files else None, lambda: list(files), archive)


@pytest.fixture
def builder(engine):
    """Return a function that builds a repository's image; what a test made of them is removed after it."""
    made: list[str] = []

    def build(config: RepoConfig, files: dict[str, str], say=print) -> str:
        def listen(line: str) -> None:
            made.extend(re.findall(r"Successfully tagged (school/repo\S*)", line))
            say(line)

        return ensure_repo_image(engine, load_settings(), config, tree_of(files), listen)

    yield build
    for tag in reversed(made):
        engine.remove_image(tag, force=True)


@pytest.fixture
def check(engine, home, tmp_path):
    """Run a command in an image on a worktree with the files, as the verification does; return code and output."""

    def run(image: str, files: dict[str, str], command: str) -> tuple[int, str]:
        work = tmp_path / "work"
        work.mkdir()
        for path, text in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        for path in (work, *work.rglob("*")):
            home.hand_over(path)
        spec = ContainerSpec(
            image=image,
            name=f"school-{home.id}-check",
            entrypoint=("sh", "-c", f"{command} 2>&1"),
            labels={LABEL_HOME: home.id},
            mounts=(Mount(str(work), "/workspace"),),
            tmpfs={"/tmp": "rw,exec", "/home/student": f"rw,exec,uid={home.uid}"},
            env={"HOME": "/home/student"},
            user=f"{home.uid}:{home.gid}",
            working_dir="/workspace",
        )
        container = engine.create(spec)
        watch = engine.watch(container)
        try:
            engine.start(container)
            lines = [line.decode() for line in watch.lines()]
            ended = watch.wait(300)
        finally:
            watch.close()
            engine.remove(container)
        assert isinstance(ended, Exited)
        return ended.code, "\n".join(lines)

    return run


def test_the_proposal_is_built_and_its_check_passes_without_a_network(builder, check):
    """Other languages: tests/integration/repos."""
    config = parse_config(propose(tree_of(PYTHON)))
    code, output = check(builder(config, PYTHON), PYTHON, config.verify)
    assert code == 0, output


def test_what_setup_made_in_the_tree_is_kept_as_far_as_git_ignores_it(builder, check):
    files = {**PYTHON, ".gitignore": "*.made\nbuild/\n", "old.made": "tracked\n"}
    made = "echo 1 > src/a.made; echo 1 > seen.txt; mkdir -p build .x; echo 1 > build/b.made; echo '*' > .x/.gitignore"
    config = RepoConfig(setup=(f"{made}; echo 1 > .x/y.txt; echo 2 > old.made",))
    code, output = check(builder(config, files), {}, "find /opt/school/tree -type f")
    assert (code, output) == (0, "/opt/school/tree/src/a.made")


def test_a_second_build_only_looks(builder):
    config = RepoConfig(setup=("touch /opt/done",))
    first = builder(config, PYTHON)
    said: list[str] = []
    assert builder(config, PYTHON, said.append) == first
    assert said == []


def test_the_tree_is_there_during_setup_and_gone_from_the_image(builder, check):
    config = RepoConfig(setup=("cp src/demo/__init__.py /opt/copy.py", "echo left > left-behind"))
    code, output = check(builder(config, PYTHON), {}, "ls -A /workspace; cat /opt/copy.py")
    assert code == 0
    assert output == PYTHON["src/demo/__init__.py"].rstrip()


def test_a_failing_command_is_named_and_its_output_kept(builder):
    config = RepoConfig(setup=("true", "echo cannot find the thing >&2; exit 4"))
    with pytest.raises(RepoSetupError, match=r"command 2 .* ended with 4") as caught:
        builder(config, PYTHON)
    assert "cannot find the thing" in caught.value.log_tail


def test_a_repositorys_own_dockerfile_is_made_fit_for_a_leaf(builder, check, image):
    files = {**PYTHON, "Dockerfile": f"FROM {image('base')}\nRUN touch /opt/own && useradd -m me\nUSER me\n"}
    own = builder(RepoConfig(dockerfile="Dockerfile"), files)
    code, output = check(own, {}, "ls /opt/own /school/lib/orchestrator/agents/entry.py && git --version")
    assert code == 0, output


def test_a_dockerfile_that_fails_is_the_repositorys_error(builder, image):
    files = {"Dockerfile": f"FROM {image('base')}\nRUN echo so it goes && false\n"}
    with pytest.raises(RepoSetupError) as caught:
        builder(RepoConfig(dockerfile="Dockerfile"), files)
    assert "so it goes" in caught.value.log_tail
