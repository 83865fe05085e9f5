# The code under test speaks in descriptors and in paths as text, and so do its tests.

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bookbag import (
    Dirs,
    archive_bookbag,
    list_bookbags,
    read_bookbag,
    update_bookbag,
    validate_bookbag,
    write_bookbag,
)
from orchestrator.bookbag.record import FIELDS
from orchestrator.bookbag.store import MAX_BOOKBAG_BYTES
from orchestrator.errors import BookbagCorruptError, BookbagError, InvalidBeadError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
records = st.dictionaries(st.text().filter(lambda name: name not in ("bead", "timestamp")), json_values, max_size=6)


def in_new_folders(root: str) -> Dirs:
    return Dirs(f"{root}/b", f"{root}/s", f"{root}/l")


@given(first=records, second=records)
@settings(deadline=None, max_examples=60)
def test_every_field_survives_a_read_modify_write_whatever_its_name_and_value(first, second):
    with tempfile.TemporaryDirectory() as root:
        dirs = in_new_folders(root)
        write_bookbag("b", first, dirs=dirs)
        changed = update_bookbag("b", second, dirs=dirs)
        bag = read_bookbag("b", dirs=dirs)
        assert bag == changed
        for name, value in {**first, **second}.items():
            assert bag[name] == value


@given(given_time=st.none() | st.text(max_size=20), fields=records)
@settings(deadline=None, max_examples=30)
def test_an_existing_bookbag_keeps_its_timestamp(given_time, fields):
    with tempfile.TemporaryDirectory() as root:
        dirs = in_new_folders(root)
        write_bookbag("b", {"timestamp": "2026-01-01T00:00:00Z"}, dirs=dirs)
        write_bookbag("b", fields | {"timestamp": given_time}, dirs=dirs)
        update_bookbag("b", fields | {"timestamp": given_time}, dirs=dirs)
        assert read_bookbag("b", dirs=dirs)["timestamp"] == "2026-01-01T00:00:00Z"


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
@settings(deadline=None, max_examples=80)
def test_whatever_lies_in_a_bookbags_place_is_a_record_or_corrupt(data):
    with tempfile.TemporaryDirectory() as root:
        dirs = in_new_folders(root)
        os.mkdir(dirs.bookbags)
        Path(dirs.bookbags, "b.json").write_bytes(data)
        with pytest.raises(BookbagCorruptError):
            read_bookbag("b", dirs=dirs)


@pytest.mark.parametrize(
    "text",
    ['{"bead": "b", "x": NaN}', '{"bead": "b", "x": 1e999}', '{"bead": "b"', '{"bead": "c"}', "{}", "[" * 200_000, ""],
)
def test_a_corrupt_file_is_never_missing_and_never_overwritten(dirs, text):
    os.mkdir(dirs.bookbags)
    path = Path(dirs.bookbags, "b.json")
    path.write_text(text)
    for call in (read_bookbag, update_bookbag, write_bookbag):
        with pytest.raises(BookbagCorruptError):
            call("b", dirs=dirs)
    assert path.read_text() == text


def test_absent_is_none(dirs):
    assert read_bookbag("b", dirs=dirs) is None
    assert update_bookbag("b", {"x": 1}, dirs=dirs) is None
    assert list_bookbags(dirs=dirs) == []
    assert not os.path.exists(f"{dirs.bookbags}/b.json")


def test_a_new_record_is_complete_and_valid(dirs):
    bag = write_bookbag("coder-x-1", task="do it", dirs=dirs)
    assert set(FIELDS) <= set(bag)
    assert validate_bookbag(bag) == []
    assert (bag["state"], bag["accepted"], bag["cto_verdict"], bag["coo_verdict"]) == ("WRITTEN", False, "", "")


def test_two_new_records_share_no_list(dirs):
    one = write_bookbag("a", dirs=dirs)
    one["findings"].append("x")
    assert write_bookbag("b", dirs=dirs)["findings"] == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", "x" * MAX_BOOKBAG_BYTES])
def test_what_could_not_be_read_back_is_not_written(dirs, value):
    write_bookbag("b", {"x": 1}, dirs=dirs)
    with pytest.raises(BookbagError):
        update_bookbag("b", {"x": value}, dirs=dirs)
    assert read_bookbag("b", dirs=dirs)["x"] == 1


def test_a_record_of_another_bead_is_refused(dirs):
    bag = write_bookbag("a", dirs=dirs)
    with pytest.raises(BookbagError, match="bead 'a'"):
        write_bookbag("b", **bag, dirs=dirs)


@pytest.mark.parametrize("bead", ["../etc", "a/b", "", "A", "..", "a.lock"])
def test_a_bead_outside_the_grammar_reaches_no_file(dirs, bead):
    for call in (read_bookbag, update_bookbag, write_bookbag):
        with pytest.raises(InvalidBeadError):
            call(bead, dirs=dirs)
    with pytest.raises(InvalidBeadError):
        archive_bookbag(bead, dirs.bookbags, dirs=dirs)


def test_the_list_holds_beads_only(dirs):
    for bead in ("b", "a", "a.json"):
        write_bookbag(bead, dirs=dirs)
    for name in ("note.txt", "Upper.json", ".b.json.00.tmp", ".json", "x.lock.json"):
        Path(dirs.bookbags, name).write_text("")
    assert list_bookbags(dirs=dirs) == ["a", "a.json", "b"]


def test_the_environment_is_read_at_each_call(tmp_path, monkeypatch):
    for school in ("one", "two"):
        monkeypatch.setenv("BOOKBAG_DIR", str(tmp_path / school))
        write_bookbag("b", task=school)
    monkeypatch.setenv("BOOKBAG_DIR", str(tmp_path / "one"))
    assert read_bookbag("b")["task"] == "one"


def test_the_default_folders_lie_in_the_home(monkeypatch):
    for name in ("BOOKBAG_DIR", "SIGNAL_DIR", "LOCK_DIR", "SCHOOL_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert Dirs.from_env() == Dirs("/home/me/.hermes/bookbag", "/home/me/.hermes/signals", "/home/me/.hermes/locks")
    monkeypatch.setenv("SCHOOL_HOME", "/srv/school")
    monkeypatch.setenv("LOCK_DIR", "/run/locks")
    assert Dirs.from_env() == Dirs("/srv/school/bookbag", "/srv/school/signals", "/run/locks")


class TestArchive:
    def test_a_disposed_bookbag_is_moved_not_deleted(self, dirs, tmp_path):
        bag = write_bookbag("b", {"odd": [1]}, dirs=dirs)
        path = archive_bookbag("b", tmp_path / "archive", dirs=dirs)
        assert json.loads(Path(path).read_text()) == bag
        assert read_bookbag("b", dirs=dirs) is None

    def test_a_second_call_changes_nothing(self, dirs, tmp_path):
        write_bookbag("b", dirs=dirs)
        path = archive_bookbag("b", tmp_path / "archive", dirs=dirs)
        assert archive_bookbag("b", tmp_path / "archive", dirs=dirs) == path
        assert os.listdir(tmp_path / "archive") == ["b.json"]
        assert archive_bookbag("c", tmp_path / "archive", dirs=dirs) is None

    def test_a_move_that_a_crash_cut_in_two_is_ended_by_the_next_call(self, dirs, tmp_path):
        write_bookbag("b", dirs=dirs)
        (tmp_path / "archive").mkdir()
        (tmp_path / "archive" / "b.json").write_bytes(Path(dirs.bookbags, "b.json").read_bytes())
        archive_bookbag("b", tmp_path / "archive", dirs=dirs)
        assert os.listdir(tmp_path / "archive") == ["b.json"]
        assert list_bookbags(dirs=dirs) == []

    def test_an_older_bookbag_in_the_archive_is_kept_beside_the_new_one(self, dirs, tmp_path):
        for task in ("first", "second", "third"):
            write_bookbag("b", task=task, dirs=dirs)
            archive_bookbag("b", tmp_path / "archive", dirs=dirs)
        archived = {path.name: json.loads(path.read_text())["task"] for path in (tmp_path / "archive").iterdir()}
        assert archived == {"b~2.json": "first", "b~3.json": "second", "b.json": "third"}

    def test_a_corrupt_bookbag_is_archived_as_it_is(self, dirs, tmp_path):
        os.mkdir(dirs.bookbags)
        Path(dirs.bookbags, "b.json").write_bytes(b"\xff not json")
        path = archive_bookbag("b", tmp_path / "archive", dirs=dirs)
        assert Path(path).read_bytes() == b"\xff not json"
