# The code under test speaks in descriptors and in paths as text, and so do its tests.

from __future__ import annotations

import builtins
import os
from pathlib import Path

from orchestrator.bookbag import BookbagSignal, ready_beads, write_bookbag


def test_the_flag_goes_up_and_down(dirs):
    flag = BookbagSignal("b", dirs=dirs)
    assert not flag.check()
    flag.ready()
    assert flag.check()
    assert Path(dirs.signals, "b.ready").is_file()
    flag.clear()
    assert not flag.check()
    flag.clear()


def test_raising_a_flag_again_is_a_new_event(dirs):
    flag = BookbagSignal("b", dirs=dirs)
    flag.ready()
    before = os.stat(flag.path).st_ino
    flag.ready()
    assert os.stat(flag.path).st_ino != before


def test_flagged_beads_are_found_without_looking_at_bookbags(dirs, monkeypatch):
    BookbagSignal("b", dirs=dirs).ready()
    looked = []
    listdir, opened = os.listdir, os.open
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(path) or listdir(path))
    monkeypatch.setattr(os, "open", lambda path, *rest, **named: looked.append(path) or opened(path, *rest, **named))
    monkeypatch.setattr(builtins, "open", lambda *_: looked.append("open"))
    assert ready_beads(dirs=dirs) == ["b"]
    monkeypatch.undo()
    assert looked == [dirs.signals]


def test_the_longest_waiting_bead_comes_first(dirs):
    for age, bead in enumerate(("c", "a", "b")):
        BookbagSignal(bead, dirs=dirs).ready()
        os.utime(f"{dirs.signals}/{bead}.ready", (1000 + age, 1000 + age))
    assert ready_beads(dirs=dirs) == ["c", "a", "b"]


def test_names_that_are_no_bead_are_ignored(dirs):
    BookbagSignal("b", dirs=dirs).ready()
    for name in ("UPPER.ready", ".b.ready.00.tmp", "..ready", "note", "x.lock.ready", ".ready"):
        Path(dirs.signals, name).write_text("")
    assert ready_beads(dirs=dirs) == ["b"]


def test_no_folder_no_beads(dirs):
    assert ready_beads(dirs=dirs) == []


def test_a_flag_with_two_readers_stays_until_both_have_spoken(dirs):
    flag = BookbagSignal("b", dirs=dirs)
    for fields, down in (
        ({}, False),
        ({"cto_verdict": "PASS", "state": "CTO_REVIEWED"}, False),
        ({"coo_verdict": "FAIL", "state": "COO_REVIEWED"}, False),
        ({"cto_verdict": "PASS", "coo_verdict": "FAIL", "state": "REVIEWED"}, True),
    ):
        write_bookbag("b", fields, dirs=dirs)
        flag.ready()
        assert flag.clear_if_reviewed() is down
        assert flag.check() is not down


def test_a_stale_flag_is_taken_down(dirs):
    flag = BookbagSignal("b", dirs=dirs)
    flag.ready()
    assert flag.clear_if_reviewed()
    assert not flag.check()
