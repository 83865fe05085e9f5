"""Bringing an engine up where none runs: for real, in mount and network namespaces of its own.

The engine that the machine runs is neither seen nor touched: /run and /var/lib/docker are fresh in there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.netns]

INSIDE = """
set -eu
mount -t tmpfs none /run
mount -t tmpfs none /var/lib/docker
mkdir -p /run/lock
ip link set lo up 2>/dev/null || true
printf 2 > /run/docker.pid
"$1" -m orchestrator.engine.provision --home "$2"
echo again
"$1" -m orchestrator.engine.provision --home "$2"
"$1" -c 'from orchestrator.engine.connect import connect; e = connect(); print(e.info().version); e.close()'
"""


@pytest.fixture
def bring_up(tmp_path):
    """Run the script above in a place without an engine; what it started is stopped afterwards."""
    if not shutil.which("dockerd"):
        pytest.fail("no dockerd is installed; `make test` installs one before the tests")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
    pid_file = tmp_path / "school" / "engine" / "dockerd.pid"
    yield lambda: subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", INSIDE, "sh", sys.executable, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    if pid_file.exists():
        stop(int(pid_file.read_text()))


def stop(pid: int) -> None:
    proc = Path(f"/proc/{pid}")
    if (proc / "comm").exists() and (proc / "comm").read_text().strip() == "dockerd":
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while proc.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        if proc.exists():
            os.kill(pid, signal.SIGKILL)


def test_a_stopped_engine_is_started_detached_and_found_the_second_time(bring_up, tmp_path):
    done = bring_up()
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("again\n")
    assert first == "unix:///var/run/docker.sock\n"
    assert second.startswith("unix:///var/run/docker.sock\n")
    assert "removing the stale /var/run/docker.pid (process 2 is no dockerd)" in done.stderr
    assert done.stderr.count("started dockerd") == 1
    pid = int((tmp_path / "school" / "engine" / "dockerd.pid").read_text())
    assert Path(f"/proc/{pid}/comm").read_text() == "dockerd\n"  # it outlived the program that started it
    assert os.getsid(pid) == pid
    assert (tmp_path / "school" / "engine" / "dockerd.log").stat().st_size > 0
