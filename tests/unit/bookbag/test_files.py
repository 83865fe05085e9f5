# The code under test speaks in descriptors and in paths as text, and so do its tests.

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.bookbag import files
from orchestrator.errors import BookbagCorruptError

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_private_and_their_folder_too(tmp_path):
    files.replace_file(str(tmp_path / "new" / "folder"), "f", b"x")
    assert stat.S_IMODE((tmp_path / "new" / "folder").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new" / "folder" / "f").stat().st_mode) == 0o600


def test_a_reader_never_sees_a_part_of_a_write(tmp_path):
    contents = [bytes([letter]) * 200_000 for letter in b"ab"]
    files.replace_file(str(tmp_path), "f", contents[0])
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            seen.append(files.read_file(str(tmp_path), "f", limit=1 << 20))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(200):
        files.replace_file(str(tmp_path), "f", contents[turn % 2], durable=False)
    stop.set()
    reader.join()
    assert seen
    assert set(seen) <= set(contents)


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch, call):
    files.replace_file(str(tmp_path), "f", b"old")

    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="no space left"):
        files.replace_file(str(tmp_path), "f", b"new")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, bytes(data[:3])))
    files.replace_file(str(tmp_path), "f", b"0123456789")
    monkeypatch.undo()
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_missing_is_none(tmp_path):
    assert files.read_file(str(tmp_path), "f", limit=9) is None
    assert files.read_file(str(tmp_path / "nothing"), "f", limit=9) is None


def _link(path: Path) -> None:
    (path.parent / "target").write_bytes(b"secret")
    path.symlink_to("target")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [_link, lambda path: path.symlink_to("nowhere"), os.mkfifo, os.mkdir, _socket],
    ids=["link", "dangling", "fifo", "folder", "socket"],
)
def test_only_regular_files_are_read(tmp_path, make):
    make(tmp_path / "f")
    with pytest.raises(BookbagCorruptError):
        files.read_file(str(tmp_path), "f", limit=100)


def test_a_file_over_the_limit_is_refused(tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    assert files.read_file(str(tmp_path), "f", limit=5) == b"12345"
    with pytest.raises(BookbagCorruptError, match="5 bytes"):
        files.read_file(str(tmp_path), "f", limit=4)


def test_a_write_through_a_link_replaces_the_link_not_its_target(tmp_path):
    _link(tmp_path / "f")
    files.replace_file(str(tmp_path), "f", b"new")
    assert (tmp_path / "target").read_bytes() == b"secret"
    assert not (tmp_path / "f").is_symlink()


def test_leftovers_of_killed_writers_are_removed_once_they_are_old(tmp_path):
    for name in (".a.json.0011.tmp", "a.json", ".hidden"):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / ".b.json.0022.tmp").write_bytes(b"")
    assert files.remove_leftovers(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == [".b.json.0022.tmp", ".hidden", "a.json"]
    assert files.remove_leftovers(str(tmp_path / "nothing")) == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_root_writes_belongs_to_the_folders_owner_before_it_has_its_name(tmp_path, monkeypatch):
    os.chown(tmp_path, 10001, 10002)
    owners = []
    rename = os.rename

    def look(source, target, *, src_dir_fd, dst_dir_fd):
        status = os.stat(source, dir_fd=src_dir_fd)
        owners.append((status.st_uid, status.st_gid))
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", look)
    files.replace_file(str(tmp_path), "f", b"1")
    files.replace_file(str(tmp_path), "f", b"2")
    assert owners == [(10001, 10002), (10001, 10002)]
