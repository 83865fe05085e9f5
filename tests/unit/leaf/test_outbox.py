"""What a student left is hostile: only small regular files are read, and only JSON objects are taken."""

import os
import socket

import pytest

from orchestrator.leaf.outbox import read_file, read_json


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "outcome.json").write_text('{"output": "done"}')
    assert read_json(tmp_path, "outcome.json") == {"output": "done"}


def test_missing_is_none(tmp_path):
    assert read_file(tmp_path, "outcome.json") is None
    assert read_file(tmp_path / "nowhere", "outcome.json") is None


def test_links_fifos_sockets_and_folders_are_not_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("{}")
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    (outbox / "link").symlink_to(secret)
    os.mkfifo(outbox / "fifo")
    (outbox / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(outbox / "socket"))
        for name in ("link", "fifo", "folder", "socket"):
            assert read_file(outbox, name) is None


def test_the_outbox_itself_may_not_be_a_link(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "a").write_text("x")
    (tmp_path / "outbox").symlink_to(real)
    assert read_file(tmp_path / "outbox", "a") is None


def test_a_large_or_sparse_file_is_not_read(tmp_path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(1 << 40)
    assert read_file(tmp_path, "big") is None
    (tmp_path / "small").write_bytes(b"x" * 11)
    assert read_file(tmp_path, "small", limit=10) is None


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", '"text"', "[" * 100_000, '{"a": ', "\x00\xff"])
def test_what_is_no_object_is_none(tmp_path, text):
    (tmp_path / "a").write_bytes(text.encode("latin-1"))
    assert read_json(tmp_path, "a") is None
