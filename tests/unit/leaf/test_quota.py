"""The disk quota sees what was added, in bytes and in files."""

import threading

from orchestrator.leaf.quota import QuotaWatcher, usage


def _watch(folder, **limits):
    reasons, seen = [], threading.Event()

    def exceeded(reason):
        reasons.append(reason)
        seen.set()

    limits = {"limit": 1 << 30, "interval": 0.05, **limits}
    watcher = QuotaWatcher([folder], limits.pop("limit"), exceeded, **limits)
    watcher.start()
    return watcher, reasons, seen


def test_usage_counts_bytes_and_entries_and_follows_no_link(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("/usr")
    size, entries = usage([tmp_path])
    assert entries == 3
    assert 100_000 <= size < 300_000


def test_bytes_above_the_limit_are_noticed_once(tmp_path):
    (tmp_path / "before").write_bytes(b"x" * 3_000_000)
    watcher, reasons, seen = _watch(tmp_path, limit=4_000_000)
    threading.Event().wait(0.3)
    assert not seen.is_set()
    (tmp_path / "bomb").write_bytes(b"x" * 6_000_000)
    assert seen.wait(20)
    watcher.stop()
    assert len(reasons) == 1
    assert "disk limit" in reasons[0]


def test_files_above_the_limit_are_noticed(tmp_path):
    watcher, reasons, seen = _watch(tmp_path, max_files=50)
    threading.Event().wait(0.2)
    for number in range(80):
        (tmp_path / str(number)).touch()
    assert seen.wait(20)
    watcher.stop()
    assert "file limit" in reasons[0]


def test_a_leaf_within_its_limit_is_left_alone(tmp_path):
    watcher, reasons, _ = _watch(tmp_path, limit=50_000_000)
    (tmp_path / "a").write_bytes(b"x" * 1_000_000)
    threading.Event().wait(0.5)
    watcher.stop()
    watcher.stop()
    assert reasons == []
