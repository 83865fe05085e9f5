"""The engine, the kernel and the network, from inside a real leaf; and the bombs that end one."""

import time
from functools import partial

import pytest

from orchestrator.engine.base import LABEL_BEAD
from orchestrator.leaf.ending import classify
from orchestrator.leaf.quota import QuotaWatcher
from orchestrator.sandbox.outcome import Outcome

pytestmark = pytest.mark.engine

_SAID: list[tuple] = []


@pytest.fixture
def tried(request):
    """What one run of ``inside/kernel.py`` said: (verdicts, record, containers of the bead afterwards)."""
    if not _SAID:
        run, inside, engine = (request.getfixturevalue(name) for name in ("run", "inside", "engine"))
        record, text, _ = run(inside.script("kernel"), wall=240, cpus=1.0, memory=400 << 20, pids=100)
        _SAID.append((inside.verdicts(text), record, engine.list({LABEL_BEAD: "coder-general-0a0a0a0a"})))
    return _SAID[0]


def test_from_inside(tried, attack_id):
    said = tried[0].get(attack_id)
    assert said is not None, f"not carried out: {sorted(tried[0])}"
    assert said["held"] is True, said["detail"]


def test_every_attack_that_was_carried_out_is_in_the_catalogue(tried, catalogue):
    assert set(tried[0]) == {entry["id"] for entry in catalogue if "::test_from_inside[" in entry["test"]}


def test_nothing_survives_it_and_nothing_was_said_in_pid_1s_name(tried):
    _, record, left = tried
    assert left == []
    assert record.finished["reason"] == ""
    assert record.exit_code == 0


@pytest.mark.parametrize("folder", ["/workspace", "/school/git", "/school/outbox"])
def test_a_disk_bomb(run, folder):
    """In files below the size that one file may have."""
    command = (
        f"cd {folder}; for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=bomb$i bs=1M count=8 2>/dev/null; done; sleep 60"
    )
    record, _, _ = run(command, disk=20 << 20, wall=60)
    assert classify(record.result, disk_exceeded=record.disk_exceeded).outcome is Outcome.DISK_EXCEEDED


def test_a_disk_bomb_deeper_than_a_path_can_be_long(run):
    """Where a walk by path does not get to: what it can't open it can't count."""
    script = (
        "import os\n"
        "for _ in range(30):\n os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "for number in range(8):\n open(f'bomb{number}', 'wb').write(b'x' * (8 << 20))\n"
        "import time; time.sleep(60)\n"
    )
    record, _, _ = run(f'cat > /tmp/bomb.py <<"END"\n{script}END\npython3 /tmp/bomb.py', disk=20 << 20, wall=60)
    assert classify(record.result, disk_exceeded=record.disk_exceeded).outcome is Outcome.DISK_EXCEEDED


def test_an_inode_bomb(run, monkeypatch):
    monkeypatch.setattr("orchestrator.leaf.run.QuotaWatcher", partial(QuotaWatcher, max_files=2000))
    command = "i=0; while [ $i -lt 200 ]; do mkdir d$i; (cd d$i; seq 50 | xargs touch); i=$((i+1)); done; sleep 60"
    record, _, _ = run(command, wall=60)
    assert classify(record.result, disk_exceeded=record.disk_exceeded).outcome is Outcome.DISK_EXCEEDED
    assert "file" in record.disk_exceeded


def test_a_log_flood(run):
    """Output without end: held back at its source, kept to a bound, and the end still arrives."""
    record, text, _ = run(
        "yes 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' | head -c 60000000", wall=20
    )
    assert len(text) < 6 << 20
    assert record.finished
    assert sum(map(len, record.output)) <= 5 << 20


def test_a_stop_is_not_outlived(make_leaf, engine):
    """A signal from outside, to a container whose every process ignores what can be ignored."""
    with make_leaf(
        "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &); trap '' TERM INT HUP; while :; do sleep 1; done"
    ) as leaf:
        leaf.boot()
        leaf.write_brief()
        engine.start(leaf._container)
        time.sleep(1)
        engine.stop(leaf._container, grace=3)
        limit = time.monotonic() + 60
        while engine.list({LABEL_BEAD: leaf.plan.bead}) and time.monotonic() < limit:
            time.sleep(0.2)
        assert engine.list({LABEL_BEAD: leaf.plan.bead}) == []
