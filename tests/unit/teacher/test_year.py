"""A year of a teacher: 10,000 reviews in 1,000 sessions. Disk use is bounded; the time to wake is printed (R-35)."""

from __future__ import annotations

import statistics
import time

from orchestrator.bookbag import files
from orchestrator.teacher import sleep
from orchestrator.teacher.history import ROTATE_AT, History
from orchestrator.teacher.memory import CONTEXT_LIMIT, Memory

SESSIONS, REVIEWS = 1000, 10


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_year_of_reviews_takes_bounded_room(tmp_path, monkeypatch, capsys):
    real = files.replace_file

    def quick(path, name, data, *, durable=True):
        real(path, name, data, durable=False)  # 3,000 syncs of a disk are not what is looked at here

    monkeypatch.setattr(files, "replace_file", quick)
    waking, sizes = [], []
    for session in range(SESSIONS):
        begun = time.perf_counter()
        state = sleep.wake(tmp_path, "teacher-cto")
        waking.append(time.perf_counter() - begun)
        history = History(tmp_path)
        memory = Memory(tmp_path, state.session_id)
        for review in range(REVIEWS):
            number = session * REVIEWS + review
            kinds = [f"kind {number % 97}", f"kind {number % 13}", f"rare {number}"]
            history.add(
                f"coder-general-{number:08x}",
                verdict="FAIL" if number % 5 == 0 else "PASS",
                score=number % 100,
                issue_classes=kinds,
                worst="HIGH " + "w" * 150,
                repo="/home/somebody/work/repository",
                domain=f"domain {number % 7}",
            )
        learned = memory.context(history.entries())
        assert len(learned) <= CONTEXT_LIMIT
        sleep.sleep(tmp_path, state, history.entries(), ["b-1"] * 50, started=0.0, keep=10, learned=learned)
        if session % 100 == 99:
            sizes.append(size_of(tmp_path))
    assert learned
    kept = list((tmp_path / sleep.CONSOLIDATED).iterdir())
    assert len(kept) == 10
    assert size_of(tmp_path / sleep.CONSOLIDATED) < 100_000
    assert (tmp_path / "session.json").stat().st_size < 10_000
    assert max(sizes) < 2 * ROTATE_AT + 2 * sleep.LOG_ROTATE_AT + 1_000_000
    assert {path.name for path in tmp_path.iterdir()} <= {
        sleep.CONSOLIDATED,
        "session.json",
        "history.jsonl",
        "history.jsonl.1",
        sleep.LOG_FILE,
        f"{sleep.LOG_FILE}.1",
    }
    with capsys.disabled():
        print(
            f"\n{SESSIONS * REVIEWS} reviews, {SESSIONS} sessions: {sizes[-1] / 1e6:.1f} MB on disk; "
            f"wake median {statistics.median(waking) * 1e3:.2f} ms, max {max(waking) * 1e3:.1f} ms"
        )
