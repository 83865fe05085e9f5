"""The archive of a commit that an image is built from."""

from __future__ import annotations

import io
import tarfile

from orchestrator.git.archive import export_archive
from orchestrator.git.repository import open_repository


def unpacked(data: bytes) -> dict[str, tuple[bytes, int]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name: (tar.extractfile(one).read(), one.mode) for one in tar.getmembers() if one.isfile()}


def test_nothing_of_the_commit_is_left_out_or_rewritten(kit, tmp_path):
    files = {
        ".gitattributes": "tests export-ignore\nVERSION export-subst\n",
        "tests/requirements.txt": "pytest\n",
        "VERSION": "$Format:%H$\n",
        "run.sh": "true\n",
    }
    root = kit.make(tmp_path / "repo", files)
    kit.git(root, "update-index", "--chmod=+x", "run.sh")
    kit.git(root, "commit", "-qm", "Executable")
    (root / "VERSION").write_text("uncommitted\n")
    repo = open_repository(root)
    found = unpacked(export_archive(repo, repo.head_sha))
    assert {name: data.decode() for name, (data, _) in found.items()} == files
    assert found["run.sh"][1] == 0o755
    assert found["VERSION"][1] == 0o644
    assert not (root / ".git/worktrees").exists()


def test_submodules_are_in_it_and_it_is_the_same_each_time(kit, tmp_path):
    lib = kit.make(tmp_path / "lib", {"l.txt": "lib\n"})
    top = kit.make(tmp_path / "top")
    kit.git(top, "submodule", "--quiet", "add", str(lib), "vendor/lib")
    kit.git(top, "commit", "-qam", "Submodule")
    repo = open_repository(top)
    data = export_archive(repo, repo.head_sha)
    assert unpacked(data)["vendor/lib/l.txt"][0] == b"lib\n"
    assert export_archive(repo, repo.head_sha) == data
