"""Writing into a worktree that a stranger's commit laid out never follows a link out of it."""

import os

import pytest

from orchestrator.leaf.slot import write_in_worktree


def test_a_file_is_written_and_its_folders_are_made(tmp_path):
    write_in_worktree(tmp_path, ".hermes/briefs/b.json", "{}", None)
    assert (tmp_path / ".hermes" / "briefs" / "b.json").read_text() == "{}"


@pytest.mark.parametrize("where", [".hermes", ".hermes/briefs"])
def test_a_linked_folder_on_the_way_is_refused(tmp_path, where):
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    place = tree / where
    place.parent.mkdir(exist_ok=True, parents=True)
    place.symlink_to(outside)
    with pytest.raises(OSError):
        write_in_worktree(tree, ".hermes/briefs/b.json", "{}", None)
    assert list(outside.iterdir()) == []


def test_a_linked_file_is_refused(tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "b").symlink_to(target)
    with pytest.raises(OSError):
        write_in_worktree(tree, "a/b", "theirs", None)
    assert target.read_text() == "mine"


def test_a_fifo_in_the_place_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "f")
    with pytest.raises(OSError):
        write_in_worktree(tmp_path, "f", "x", None)
