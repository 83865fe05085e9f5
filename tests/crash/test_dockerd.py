"""A real engine is killed and started again under a working student: in a network namespace of its own.

A second dockerd in the machine's own namespace would delete the first one's bridge. Only the student runs on it; the
standing parts stay where they are, so the judges are asked in the principal's own process.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_BEAD
from orchestrator.engine.docker import DockerEngine
from orchestrator.errors import EngineError

pytestmark = [pytest.mark.standing, pytest.mark.netns, pytest.mark.root]

PRINCIPAL = """
import json, sys
from orchestrator.engine.docker import DockerEngine
from orchestrator.principal.cancel import Cancellation
from orchestrator.principal.conductor import Conductor
from orchestrator.principal.journal import Quiet
from orchestrator.principal.prepare import prepare
from orchestrator.principal.request import SpawnRequest
from orchestrator.principal.school import open_school
say = lambda text: print(text, file=sys.stderr)
with Cancellation().installed() as cancellation, open_school(say) as school:
    prepared = prepare(SpawnRequest.from_json(json.loads(sys.argv[1])), school, say)
    school.engine = DockerEngine(sys.argv[2])
    report = Conductor(school, school.ledger, cancellation).drive(prepared, Quiet())
    school.engine.close()
sys.exit(report.exit_code)
"""


class Daemon:
    """A dockerd with folders and a network namespace of its own."""

    def __init__(self, root):
        self.root, self.socket = root, f"unix://{root}/d.sock"
        self._process = None

    def start(self):
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "unshare", "--net", "dockerd", "--data-root", self.root / "data", "--exec-root", self.root / "exec",
                    "--pidfile", self.root / "pid", "--host", self.socket, "--bridge=none", "--iptables=false",
                    "--ip6tables=false",
                ],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(EngineError), contextlib.closing(DockerEngine(self.socket)) as engine:
                engine.info()
                return
            assert time.monotonic() < deadline, (self.root / "log").read_text()[-3000:]
            time.sleep(0.1)

    def close(self):
        """Remove what killed daemons left: processes with this folder on their command line, and mounts below it."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.root).encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.root}/")]):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def end(self, number):
        self._process.send_signal(number)
        self._process.wait(timeout=60)
        # its containerd dies with it; where nobody reaps orphans the next daemon would take the dead one for alive
        pid_file = self.root / "exec" / "containerd" / "containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        pid_file.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def daemon(image):
    root = Path(tempfile.mkdtemp(prefix="school-dockerd-"))  # not pytest's: what a killed engine leaves can be busy
    made = Daemon(root)
    try:
        made.start()
        with subprocess.Popen(["docker", "save", image("student")], stdout=subprocess.PIPE) as save:
            load = ["docker", "-H", made.socket, "load"]
            subprocess.run(load, stdin=save.stdout, check=True, stdout=subprocess.DEVNULL)
        yield made
        made.end(signal.SIGTERM)
    finally:
        made.close()


def start(crashes, daemon, request):
    """Start a principal whose students run on the daemon, and wait until its student has begun to write."""
    said = daemon.root / "said"
    with said.open("wb") as sink:
        principal = subprocess.Popen(
            [sys.executable, "-c", PRINCIPAL, json.dumps(request), daemon.socket],
            env={**crashes.school.env, "SCHOOL_JANITOR": "false"}, stderr=sink,
        )  # fmt: skip
    folder = crashes.home.leaves / request["bead"]

    def begun():
        assert principal.poll() is None, (said.read_text()[-3000:], crashes.why(request["bead"]))
        return list(folder.glob("study-*/made.txt"))

    crashes.until(begun, 90)
    return principal


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_is_restarted_ends_the_bead_typed_and_its_work_is_kept(crashes, daemon, number):
    bead = crashes.bead()
    request = crashes.request(bead, agent="command", command="echo begun > made.txt; sleep 300", timeout=120)
    principal = start(crashes, daemon, request)
    daemon.end(number)
    time.sleep(1)
    daemon.start()
    assert principal.wait(timeout=200) in {3, 7}, crashes.why(bead)
    with contextlib.closing(DockerEngine(daemon.socket)) as engine:
        assert [container.name for container in engine.list({LABEL_BEAD: bead})] == []
    assert crashes.row(bead)["outcome"] in {"lost", "task_failed"}
    assert crashes.git("show", f"{crashes.ref(bead)}:made.txt") == "begun"
    assert crashes.left(bead) == []


def test_an_engine_that_stays_away_leaves_the_removal_to_the_janitor(crashes, daemon):
    """The record is typed at once when the person gives up; the tree stays until the container is known to be gone."""
    bead = crashes.bead()
    request = crashes.request(bead, agent="command", command="echo begun > made.txt; sleep 300", timeout=120)
    principal = start(crashes, daemon, request)
    daemon.end(signal.SIGTERM)
    try:
        os.kill(principal.pid, signal.SIGTERM)
        assert principal.wait(timeout=120) == 130
        row = crashes.row(bead)
        assert (row["status"], row["outcome"], row["cleanup"]) == ("ended", "cancelled", "failed")
        assert (crashes.home.leaves / bead).exists()
    finally:
        daemon.start()
    crashes.janitor()
    assert crashes.ref(bead)
    assert crashes.left(bead) == []
