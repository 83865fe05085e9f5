"""What the judges read: whole where it fits, cut and named where not; a file's size never stops a bead."""

import hashlib
import json

from orchestrator.git.blobs import Blob
from orchestrator.home import Home
from orchestrator.leaf.evidence import FILE_BUDGET, NEIGHBOUR_BUDGET, neighbours_of, write_evidence


def _home(tmp_path):
    return Home(tmp_path, tmp_path / "b", tmp_path / "s", tmp_path / "l").ensure()


def _write(home, blobs, *, changed, neighbours=(), diff=b"d", log=b""):
    def read(paths, limit):
        return {path: Blob(blobs[path][:limit], len(blobs[path])) for path in paths}

    digest = write_evidence(
        home,
        "b-1",
        record={"task": "t"},
        diff=diff,
        changed=changed,
        neighbours=neighbours,
        read=read,
        verification_log=log,
    )
    data = (home.evidence / "b-1" / "evidence.json").read_bytes()
    assert digest == hashlib.sha256(data).hexdigest()
    return json.loads(data)


def test_each_part_has_its_digest(tmp_path):
    home = _home(tmp_path)
    found = _write(home, {"a.py": b"x = 1\n"}, changed=["a.py"], log=b"ok")
    for part in found["parts"]:
        data = (home.evidence / "b-1" / part["name"]).read_bytes()
        assert part["sha256"] == hashlib.sha256(data).hexdigest()
        assert part["bytes"] == len(data)
    assert [part["name"] for part in found["parts"]] == ["diff.patch", "files/0", "verification.log"]
    assert found["cut"] == []


def test_a_large_file_is_cut_and_named(tmp_path):
    blobs = {"package-lock.json": b"l" * 3_000_000, "near.txt": b"n" * 2_000_000}
    found = _write(_home(tmp_path), blobs, changed=["package-lock.json"], neighbours=["near.txt"])
    assert [part["bytes"] for part in found["parts"][1:]] == [FILE_BUDGET, NEIGHBOUR_BUDGET]
    assert all(part["truncated"] for part in found["parts"][1:])
    assert any("package-lock.json: 3000000 bytes" in line for line in found["cut"])


def test_a_binary_file_is_named_only(tmp_path):
    found = _write(_home(tmp_path), {"x.bin": b"\0" * 5_000_000}, changed=["x.bin"])
    assert found["cut"] == ["x.bin: binary, 5000000 bytes, not shown"]


def test_what_the_budget_leaves_out_is_named(tmp_path):
    blobs = {f"f{n}.txt": b"t" * FILE_BUDGET for n in range(6)}
    found = _write(_home(tmp_path), blobs, changed=list(blobs))
    assert sum("not shown, the budget" in line for line in found["cut"]) == 2


def test_the_end_of_a_log_is_what_is_kept(tmp_path):
    home = _home(tmp_path)
    _write(home, {}, changed=[], log=b"a" * 100_000 + b"THE END")
    assert (home.evidence / "b-1" / "verification.log").read_bytes().endswith(b"THE END")


def test_evidence_is_written_anew_for_another_review(tmp_path):
    home = _home(tmp_path)
    _write(home, {"a": b"1", "b": b"2"}, changed=["a", "b"])
    found = _write(home, {"a": b"1"}, changed=["a"])
    assert not (home.evidence / "b-1" / "files" / "1").exists()
    assert len(found["parts"]) == 2


def test_neighbours_are_tests_of_that_name_and_files_of_that_folder():
    tree = ["src/cart.py", "src/price.py", "tests/test_cart.py", "docs/x.md", "src/deep/y.py"]
    assert neighbours_of(["src/cart.py"], tree) == ["tests/test_cart.py", "src/price.py"]
