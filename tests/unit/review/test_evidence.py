from __future__ import annotations

import hashlib
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import ReviewError
from orchestrator.review import evidence as module
from orchestrator.review.budget import select
from orchestrator.review.evidence import read_evidence


def test_it_reads_parts_in_order_and_digests_the_index(evidence_folder):
    evidence_folder.part("diff.patch", "diff --git a/x b/x\n")
    evidence_folder.part("files/0", "x = 2\n", "src/a.py")
    evidence = evidence_folder.write().read()
    assert [(part.name, part.path, part.text) for part in evidence.parts] == [
        ("diff.patch", "", "diff --git a/x b/x\n"),
        ("files/0", "src/a.py", "x = 2\n"),
    ]
    raw = (evidence_folder.folder / "evidence.json").read_bytes()
    assert evidence.digest == hashlib.sha256(raw).hexdigest()


def test_a_part_that_was_changed_afterwards_is_refused(evidence_folder):
    evidence_folder.part("diff.patch", "harmless")
    evidence_folder.write()
    (evidence_folder.folder / "diff.patch").write_text("harmful!")
    with pytest.raises(ReviewError, match="SHA-256"):
        evidence_folder.read()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "files/../x", "files/a", "other", "", "files/1\n"])
def test_a_part_with_another_name_is_refused(evidence_folder, name):
    evidence_folder.parts = [{"name": name, "sha256": "0" * 64}]
    with pytest.raises(ReviewError, match="named"):
        evidence_folder.write().read()


def test_links_pipes_and_folders_are_refused_without_hanging(evidence_folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    target = evidence_folder.folder / "diff.patch"
    evidence_folder.parts = [{"name": "diff.patch", "sha256": digest}]
    evidence_folder.write()
    target.symlink_to(secret)
    with pytest.raises(ReviewError, match=r"diff\.patch can't be opened"):
        evidence_folder.read()
    target.unlink()
    os.mkfifo(target)
    with pytest.raises(ReviewError, match="not a regular file"):
        evidence_folder.read()
    target.unlink()
    target.mkdir()
    with pytest.raises(ReviewError):
        evidence_folder.read()


def test_a_linked_folder_of_a_bead_or_of_files_is_refused(evidence_folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_text("secret")
    evidence_folder.parts = [{"name": "files/0", "sha256": hashlib.sha256(b"secret").hexdigest()}]
    evidence_folder.write()
    (evidence_folder.folder / "files").symlink_to(outside)
    with pytest.raises(ReviewError, match="can't be opened"):
        evidence_folder.read()
    (evidence_folder.root / "linked").symlink_to(evidence_folder.folder)
    with pytest.raises(ReviewError, match="can't be opened"):
        read_evidence(evidence_folder.root, "linked")


@pytest.mark.parametrize("bead", ["..", "../x", "", "a/b", "A", "a..b"])
def test_a_bead_outside_of_the_grammar_of_r6_is_refused(evidence_folder, bead):
    with pytest.raises(ReviewError, match="Not a bead id"):
        read_evidence(evidence_folder.root, bead)


def test_missing_evidence_and_another_beads_are_review_errors(evidence_folder):
    with pytest.raises(ReviewError, match="can't be opened"):
        evidence_folder.read()
    with pytest.raises(ReviewError, match="another bead"):
        evidence_folder.write(bead="coder-general-ffffffff").read()


def test_size_limits_hold(evidence_folder, monkeypatch):
    evidence_folder.part("diff.patch", "x" * 2000)
    evidence_folder.part("files/0", "x" * 2000)
    evidence_folder.write()
    monkeypatch.setattr(module, "PARTS_LIMIT", 3000)
    with pytest.raises(ReviewError, match="larger than 3000"):
        evidence_folder.read()
    monkeypatch.setattr(module, "PART_LIMIT", 1000)
    with pytest.raises(ReviewError, match="larger than 1000"):
        evidence_folder.read()


def test_bytes_that_are_no_text_are_read_with_marks(evidence_folder):
    evidence_folder.part("files/0", b"\xff\x00ok\xe2\x80\xae", "bin")
    part = evidence_folder.write().read().parts[0]
    assert part.text == "\ufffd[U+0000]ok[U+202E]"
    assert dict(part.hidden) == {"U+0000": 1, "U+202E": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"head_sha": 5},
        {"head_sha": None},
        {"role": None},
        {"files": ["x"]},
        {"files": {}},
        {"files": [{"path": 1}]},
        {"student": []},
        {"student": {"messages": [1]}},
        {"verification": {"exit_code": True}},
        {"verification": {"baseline": 3}},
        {"cut": [None]},
        {"v": 2},
    ],
)
def test_a_field_of_the_wrong_type_is_a_review_error(evidence_folder, change):
    with pytest.raises(ReviewError):
        evidence_folder.write(**change).read()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
INDEX = st.fixed_dictionaries(
    {"v": st.just(1), "bead": st.just("b")},
    optional={
        key: JSON | st.text()
        for key in (
            "head_sha",
            "base_sha",
            "role",
            "difficulty",
            "task",
            "files",
            "student",
            "verification",
            "parts",
            "cut",
        )
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=INDEX.map(lambda index: json.dumps(index).encode()) | st.binary(max_size=200))
def test_any_index_gives_evidence_or_a_review_error(tmp_path, raw):
    (tmp_path / "b").mkdir(exist_ok=True)
    (tmp_path / "b" / "evidence.json").write_bytes(raw)
    try:
        evidence = read_evidence(tmp_path, "b")
    except ReviewError:
        return
    assert evidence.bead == "b"


def piece(path: str, size: int) -> str:
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1 @@\n"
    return head + "+" + "x" * (size - len(head) - 2) + "\n"


def test_everything_fits_and_nothing_is_named_as_cut(evidence_folder):
    evidence_folder.part("diff.patch", piece("a.py", 500))
    evidence_folder.part("verification.log", "ok\n")
    selection = select(evidence_folder.write().read(), 10_000)
    assert selection.cut == ()
    assert [part.name for part in selection.parts] == ["diff.patch", "verification.log"]


def test_a_large_file_in_the_diff_does_not_hide_the_small_ones(evidence_folder):
    evidence_folder.part("diff.patch", piece("big one.py", 50_000) + piece("small.py", 300))
    selection = select(evidence_folder.write().read(), 5_000)
    assert "b/small.py" in selection.parts[0].text
    assert len(selection.parts[0].text) <= 5_001
    assert selection.unseen == ("big one.py",)
    assert any("big one.py" in entry and "50000" in entry for entry in selection.cut)


def test_a_lock_file_that_is_cut_is_kept_apart(evidence_folder):
    evidence_folder.part("diff.patch", piece("web/package-lock.json", 50_000))
    selection = select(evidence_folder.write().read(), 5_000)
    assert (selection.unseen, selection.unseen_locks) == ((), ("web/package-lock.json",))


def test_content_that_looks_like_a_header_of_a_diff_stays_content(evidence_folder):
    body = piece("a.py", 200) + "+diff --git a/yarn.lock b/yarn.lock\n" + "+" + "y" * 20_000 + "\n"
    evidence_folder.part("diff.patch", body)
    assert select(evidence_folder.write().read(), 5_000).unseen == ("a.py",)


def test_files_come_before_neighbours_and_the_end_of_the_log_is_kept(evidence_folder):
    evidence_folder.part("diff.patch", piece("a.py", 1_000))
    evidence_folder.part("files/0", "f" * 4_000, "a.py")
    evidence_folder.part("neighbours/0", "n" * 9_000, "b.py")
    evidence_folder.part("verification.log", "start" + "l" * 9_000 + "FAILED 3 tests")
    selection = select(evidence_folder.write().read(), 10_000)
    by_name = {part.name: part.text for part in selection.parts}
    assert len(by_name["files/0"]) == 4_000
    assert by_name["verification.log"].endswith("FAILED 3 tests")
    assert sum(map(len, by_name.values())) <= 10_000
    assert [entry.split(":")[0].split(" ")[0] for entry in selection.cut] == ["neighbours/0", "verification.log"]


def test_what_was_cut_before_is_named_and_a_cut_diff_is_unseen(evidence_folder):
    evidence_folder.part("diff.patch", piece("a.py", 500), truncated=True)
    evidence_folder.part("files/0", "x" * 500, "a.py", truncated=True)
    selection = select(evidence_folder.write(cut=["neighbours: 3 files"]).read(), 10_000)
    assert len(selection.cut) == 3
    assert selection.unseen == ("(the end of the diff)",)


@given(st.lists(st.integers(100, 3000), max_size=6), st.integers(0, 6000), st.integers(0, 4000), st.integers(0, 4000))
def test_the_budget_holds_and_each_missing_character_has_a_name(sizes, budget, neighbour, log):
    parts = [module.Part("diff.patch", "", "".join(piece(f"f{n}.py", size) for n, size in enumerate(sizes)))]
    parts += [module.Part("neighbours/0", "n.py", "n" * neighbour), module.Part("verification.log", "", "l" * log)]
    whole = module.Evidence("b", "h", "a", "coder", "easy", "t", "d", parts=tuple(parts))
    selection = select(whole, budget)
    shown = sum(len(part.text) for part in selection.parts)
    assert shown <= budget + len(sizes)
    if shown < sum(len(part.text) for part in parts):
        assert selection.cut
    else:
        assert not selection.unseen
