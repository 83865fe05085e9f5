"""The home's disk is full when it matters: on a small file system of its own."""

import contextlib
import os
import subprocess

import pytest

from orchestrator.engine.base import LABEL_BEAD, LABEL_HOME

pytestmark = [pytest.mark.standing, pytest.mark.root]


@pytest.fixture
def small(school, engine, crashes, tmp_path):
    """A school of its own on 96 MiB, with the session's repository."""
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", str(root)], check=True)
    made = type(school)(root)
    try:
        up = made.run("up", timeout=600)
        assert up.returncode == 0, up.stderr
        yield type(crashes)(made, engine, crashes.repo)
    finally:
        for container in engine.list({LABEL_HOME: made.home.id}):
            engine.remove(container.id)
        engine.remove_network(f"school-{made.home.id}")
        engine.remove_volume(f"school-{made.home.id}-omniroute-data")
        subprocess.run(["umount", "--lazy", str(root)], check=True)


def fill(path):
    """Write until there is no room."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)


def test_a_full_disk_stops_neither_the_removal_nor_the_record(small):
    bead = small.bead()
    principal = small.start(bead, task="[rehearse: run echo begun > made.txt && sleep 300]")
    small.running(bead)
    small.until(lambda: list((small.home.leaves / bead).glob("study-*/made.txt")))
    filler = small.home.root / "filler"
    fill(filler)
    assert os.statvfs(small.home.root).f_bavail == 0
    principal.terminate()
    principal.wait(timeout=120)
    assert small.engine.list({LABEL_HOME: small.home.id, LABEL_BEAD: bead}) == []  # the student is gone all the same
    filler.unlink()
    small.janitor()
    assert small.row(bead)["outcome"] in {"cancelled", "lost"}
    assert small.git("show", f"{small.ref(bead)}:made.txt") == "begun"
    assert small.left(bead) == []
