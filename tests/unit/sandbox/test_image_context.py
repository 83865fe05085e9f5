"""A build context decides an image's tag: it must change when the content does, and only then."""

from __future__ import annotations

import io
import tarfile

import pytest

from orchestrator.errors import ConfigError
from orchestrator.sandbox.image_context import BuildContext, ContextFile, folder_files, package_files

A = ContextFile("a", b"1")
B = ContextFile("b/c", b"2", executable=True)


def test_the_digest_does_not_depend_on_the_order_of_files():
    assert BuildContext((A, B)).digest({"x": "1"}) == BuildContext((B, A)).digest({"x": "1"})


@pytest.mark.parametrize(
    "other",
    [
        (ContextFile("a", b"2"), B),
        (ContextFile("a2", b"1"), B),
        (A, ContextFile("b/c", b"2")),
        (A,),
        (ContextFile("a", b"1b/c2"),),
    ],
)
def test_the_digest_changes_with_content_name_mode_and_number(other):
    assert BuildContext((A, B)).digest({}) != BuildContext(tuple(other)).digest({})


def test_the_digest_changes_with_a_build_argument():
    assert BuildContext((A,)).digest({"BASE_IMAGE": "x"}) != BuildContext((A,)).digest({"BASE_IMAGE": "y"})


def test_the_archive_is_the_same_bytes_each_time_and_holds_the_files():
    archive = BuildContext((B, A)).archive()
    assert archive == BuildContext((A, B)).archive()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert [(m.name, m.mode, m.uid) for m in tar] == [("a", 0o644, 0), ("b/c", 0o755, 0)]
        assert tar.extractfile("b/c").read() == b"2"


def test_caches_and_links_of_a_folder_are_left_out(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_bytes(b"")
    (tmp_path / "real").write_text("r")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert [file.path for file in folder_files(tmp_path, "at/")] == ["at/real"]


def test_a_room_and_a_module_of_the_package_are_found():
    paths = {file.path for file in package_files(["errors.py", "engine"], "lib/")}
    assert {"lib/errors.py", "lib/engine/base.py"} <= paths
    assert not any("__pycache__" in path for path in paths)


def test_a_missing_room_is_an_error_and_not_an_image_without_it():
    with pytest.raises(ConfigError, match="no_such_room"):
        package_files(["no_such_room"])
