"""Measurements on a whole school: signal to review start."""

from __future__ import annotations

import time

from orchestrator import bookbag
from orchestrator.leaf.evidence import write_evidence


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def review_start(school, beads: int) -> dict[str, object]:
    """Raise a flag and watch the bookbag until both teachers have noted that they began; milliseconds."""
    dirs = bookbag.Dirs(school.home.bookbags, school.home.signals, school.home.locks)
    times: dict[str, list[float]] = {"cto": [], "coo": []}
    for number in range(beads):
        bead = f"bench-review-{number:08x}"
        record = {
            "repo": "bench", "base_sha": "0" * 40, "head_sha": "1" * 40, "role": "searcher", "domain": "bench",
            "difficulty": "easy", "task": "nothing", "expected_output_format": "", "instructions": "", "files": [],
            "student": {"output": "an answer", "summary": "", "messages": [], "agent": "light", "status": "completed"},
            "verification": {"status": "not_configured", "command": None, "exit_code": None, "log_file": None, "baseline": None},
        }  # fmt: skip
        write_evidence(
            school.home,
            bead,
            record=record,
            diff=b"",
            changed=[],
            neighbours=[],
            read=lambda _paths, _limit: {},
            verification_log=b"",
        )
        fields = {
            "task": "nothing",
            "student": "searcher",
            "difficulty": "easy",
            "output": "an answer",
            "head_sha": "1" * 40,
        }
        bookbag.write_bookbag(bead, {**fields, "base_sha": "0" * 40, "state": "WRITTEN"}, dirs=dirs)
        with bookbag.Watcher(dirs.bookbags) as watcher:
            signalled = time.perf_counter()
            bookbag.BookbagSignal(bead, dirs=dirs).ready()
            waiting = {"cto", "coo"}
            while waiting:
                assert time.perf_counter() - signalled < 60, f"{bead}: {waiting} did not begin"
                watcher.wait(1.0)
                bag = bookbag.read_bookbag(bead, dirs=dirs) or {}
                begun = {teacher for teacher in waiting if bag.get(f"{teacher}_picked_up_at")}
                for teacher in begun:
                    times[teacher].append((time.perf_counter() - signalled) * 1000)
                waiting -= begun
        bookbag.wait_for_verdicts(bead, timeout=60, interval=1, dirs=dirs)
        bookbag.BookbagSignal(bead, dirs=dirs).clear()
    both = times["cto"] + times["coo"]
    return {
        "signal to review start p50 (ms)": round(percentile(both, 0.5), 1),
        "signal to review start p95 (ms, aim 50)": round(percentile(both, 0.95), 1),
    }
