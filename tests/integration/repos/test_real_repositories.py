"""Three real repositories, set up as the school proposes, each with a real change of its code and its own check.

They are source distributions of the package index, made into repositories: markupsafe compiles an extension, jinja2
depends on a compiled package, pluggy takes its version from git and has its dependencies in setup.cfg. The student
is answered by a scripted model (rehearsals/real.yaml); everything else is as in real life.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]

NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}
AGENTS = ["light", "hermes"]
TASKS = {
    "markupsafe": "escape() leaves the backtick as it is; turn it into &#96;, in both implementations, with a test.",
    "jinja2": "Add a filter swapcase, with a test.",
    "pluggy": "Add PluginManager.plugin_names(), the sorted names of the registered plugins, with a test.",
}
CHANGED = {
    "markupsafe": ["src/markupsafe/_native.py", "src/markupsafe/_speedups.c", "tests/test_backtick.py"],
    "jinja2": ["src/jinja2/filters.py", "tests/test_swapcase.py"],
    "pluggy": ["src/pluggy/_manager.py", "testing/test_plugin_names.py"],
}


@pytest.fixture(scope="module", autouse=True)
def _scenarios(school):
    folder = school.home.school / "rehearsals"
    folder.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parent / "rehearsals" / "real.yaml", folder)
    yield
    (folder / "real.yaml").unlink()


@pytest.fixture(scope="module")
def repos(source, unpack, set_up):
    """The three, set up once for both agents."""
    sources = [
        source("markupsafe", "3.0.2", "ee55d3edf80167e48ea11a923c7386f4669df67d7994554387f84e7d8b0a2bf0"),
        source("jinja2", "3.1.6", "0137fb05990d35f1275a587e9aee6d56da821fc83491a0fb838183be43f66d6d"),
        source(
            "pluggy",
            "1.5.0",
            "2cffa88e94fdc978c4c574f15f9e59b7f4201d439195c3715ca9e2486f1d0cf1",
            ignored="src/pluggy/_version.py\n",
            generated=("PKG-INFO", "src/pluggy/_version.py"),
        ),
    ]
    made = {one.name: unpack(one) for one in sources}
    for root in made.values():
        set_up(root, "--agent", "hermes")
    return made


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(school, engine):
    yield
    assert school.traces(engine) == NOTHING


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", ["markupsafe", "jinja2", "pluggy"])
def test_a_real_change_passes_the_repositorys_own_check(school, repos, git, name, agent):
    repo = repos[name]
    done = school.spawn(repo, TASKS[name], "--agent", agent)
    assert (done.code, done.report.get("outcome")) == (0, "accepted"), done.stderr
    report = done.report
    assert report["files_changed"] == CHANGED[name]
    assert report["verification"]["status"] == "passed"
    assert "pytest -q" in report["verification"]["command"]
    assert " passed" in report["verification"]["log"]
    assert report["verdicts"] == {"cto": "PASS", "coo": "PASS"}
    assert report["usage"]["student"]["calls"] >= 5
    assert "will run" not in done.stderr  # the setup was run once, for both agents
    assert git(repo, "rev-parse", report["branch"]) == report["head_sha"]
    assert git(repo, "status", "--porcelain") == ""


@pytest.mark.parametrize("agent", AGENTS)
def test_a_change_that_breaks_the_check_is_rejected_whatever_the_student_says(school, repos, agent):
    done = school.spawn(repos["pluggy"], "Make has_plugin() faster.", "--agent", agent)
    assert (done.code, done.report["outcome"]) == (1, "rejected")
    assert "All tests pass" in done.report["output"]
    check = done.report["verification"]
    assert (check["status"], check["baseline"]) == ("failed", "passed")
    assert "failed" in check["log"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_teacher_that_says_fail_rejects_a_change_that_passes(school, repos, agent):
    done = school.spawn(repos["jinja2"], f"[rehearse: cto-fail] {TASKS['jinja2']}", "--agent", agent)
    assert (done.code, done.report["outcome"]) == (1, "rejected")
    assert done.report["verification"]["status"] == "passed"
    assert done.report["verdicts"] == {"cto": "FAIL", "coo": "PASS"}
    assert done.report["branch"] is None


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("marker", ["nonsense", "idle"])
def test_nonsense_and_idleness_are_not_accepted(school, repos, agent, marker):
    done = school.spawn(repos["markupsafe"], f"[rehearse: {marker}] Improve it.", "--agent", agent)
    assert (done.code, done.report["outcome"], done.report["accepted"]) == (3, "task_failed", False)
    assert done.report["head_sha"] is None
    assert done.report["files_changed"] == []
