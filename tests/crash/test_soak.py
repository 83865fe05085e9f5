"""Many beads with random kills: nothing is left of any of them, and the long-lived parts stay as they were.

20 beads in the suite; `make soak` runs 300 (SOAK_BEADS) and prints the figures.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_HOME, LABEL_KIND
from orchestrator.sandbox.outcome import Outcome
from orchestrator.sandbox.standing import STANDING

pytestmark = [pytest.mark.standing, pytest.mark.timeout(0)]

BEADS = int(os.environ.get("SOAK_BEADS", "20"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
POINTS = (  # noqa: SIM905 - reads better so
    "opened grant.key grant worktree.registered worktree container stage.booted run:intent run grant_closed.gate "
    "stage.ran freeze ref.pack ref stage.frozen verify.container verify.run verify stage.verified evidence bookbag "
    "stage.handed_over signal review acceptance branch outcome scored dispose.containers dispose.worktree "
    "dispose.folders dispose archive.scored archive ended"
).split()
FINISHED = ["Exited", {"code": 0, "oom": False}]
WARM = 0.2
"""Share of the beads after which the parts are looked at for the first time."""


def figures(crashes):
    """Open files and memory (MiB) of each long-lived part's processes."""
    found = {}
    for kind in STANDING:
        container = crashes.engine.list({LABEL_HOME: crashes.home.id, LABEL_KIND: kind})[0]
        pages = int(Path(f"/proc/{container.pid}/statm").read_text().split()[1])
        files = len(list(Path(f"/proc/{container.pid}/fd").iterdir()))
        found[str(kind)] = (files, round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)))
    return found


def some_jobs(crashes, chance, count):
    """A third goes its way, a third dies at a point, a third at some moment."""
    jobs = []
    for _ in range(count):
        at, after = chance.choice([("", 0), (chance.choice(POINTS), 0), ("", chance.uniform(0.05, 2.5))])
        jobs.append((crashes.bead(), at, after, {"verify": chance.choice(["true", "", "false"])}))
    return jobs


@pytest.mark.root
def test_random_kills_leave_nothing(crashes, bystanders):
    chance = random.Random(SEED)
    started = time.monotonic()
    warm = max(5, int(BEADS * WARM))
    ended = crashes.drive_guarded(some_jobs(crashes, chance, warm))
    before = figures(crashes)
    ended |= crashes.drive_guarded(some_jobs(crashes, chance, BEADS - warm))
    crashes.janitor(1800)
    after = figures(crashes)
    seconds = time.monotonic() - started
    rows = {bead: crashes.row(bead) for bead in ended}
    opened = {bead: row for bead, row in rows.items() if row is not None}  # the others died before there was a bead
    outcomes = Counter(row["outcome"] for row in opened.values())
    print(f"\nsoak: {BEADS} beads in {seconds:.0f} s, seed {SEED}, {sum(code < 0 for code in ended.values())} killed")
    print("outcomes:", ", ".join(f"{outcome} {number}" for outcome, number in outcomes.most_common()))
    for kind in before:
        print(f"{kind:<12} open files {before[kind][0]} -> {after[kind][0]}, MiB {before[kind][1]} -> {after[kind][1]}")
    assert {bead: found for bead in opened if (found := crashes.left(bead))} == {}
    assert crashes.left_anywhere() == []
    assert set(outcomes) <= {Outcome.ACCEPTED, Outcome.REJECTED, Outcome.LOST}
    finished = {bead for bead, row in opened.items() if row["data"].get("seen", {}).get("result") == FINISHED}
    assert {bead for bead in finished if not crashes.ref(bead)} == set()
    for kind, (files, memory) in after.items():
        assert files <= before[kind][0] + 12, kind
        assert memory <= before[kind][1] * 1.3 + 60, kind
