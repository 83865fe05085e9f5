"""The disk quota sees what was added, in bytes and in files."""

import os
import threading

import pytest

from orchestrator.git.dispose import remove
from orchestrator.leaf import quota
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


def test_what_lies_deeper_than_a_path_can_be_long_is_counted(tmp_path):
    """A disk bomb below 5,000 bytes of folders passed the first version of this."""
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=at)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    with os.fdopen(os.open("bomb", os.O_WRONLY | os.O_CREAT, dir_fd=at), "wb") as file:
        file.write(b"x" * (1 << 20))
    os.close(at)
    total, entries = usage([tmp_path])
    assert total >= 1 << 20
    assert entries == 26
    assert remove(tmp_path)


def test_a_tree_that_is_deeper_than_anybody_needs_is_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(quota, "LONGEST_PATH", 100)
    (tmp_path / ("d" * 60) / ("d" * 60) / "below").mkdir(parents=True)
    assert usage([tmp_path])[1] > quota.MAX_FILES


def test_a_folder_that_became_a_link_is_not_followed(tmp_path):
    """Between the look and the opening a student can put a link to the host's own folders in a folder's place."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "a").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    root = os.fsencode(inside)
    os.close(quota._open_below(root, [b"a"]))
    for names in ([b"link"], [b"link", b"b"], [b"..", b"outside"]):
        with pytest.raises(OSError, match=r"Not a directory|symbolic|leads out"):
            quota._open_below(root, names)
