"""The must-nots of the roles are enforced by mounts and APIs, not asked for (R-52). docs/personas.md is the table."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path

import pytest

from orchestrator import layout
from orchestrator.bookbag import check_submission, make_seal, make_submission, new_bookbag, output_digest, verify_seal
from orchestrator.engine.base import Kind, Mount
from orchestrator.errors import BookbagError, SealError
from orchestrator.home import home_at
from orchestrator.review.evidence import read_evidence
from orchestrator.review.reviewer import Reviewer
from orchestrator.sandbox.parts import PartsPlan
from orchestrator.sandbox.spec import LeafFolders, Limits, leaf_spec
from orchestrator.settings import load_settings

ROOT = Path(__file__).parents[2]
BEAD = "coder-general-1a2b3c4d"


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


@pytest.fixture
def student(home, tmp_path):
    slot = home.leaves / BEAD
    objects = Mount(str(tmp_path / "repo" / ".git" / "objects"), layout.OBJECTS, read_only=True)
    gate = home.gate / "sockets" / BEAD
    names = ("tree", "pointer", "git")
    folders = LeafFolders(
        *(slot / name for name in names), [objects], *(slot / n for n in ("inbox", "outbox", "passwd", "group")), gate
    )
    limits = Limits(wall=60, memory=1 << 28, cpus=1.0, pids=64, disk=1 << 28, tmp=1 << 26)
    return leaf_spec(
        home,
        kind=Kind.LEAF,
        bead=BEAD,
        name="study-coder-1a2b3c4d",
        image="i",
        folders=folders,
        limits=limits,
        deadline=0,
        env={},
    )


@pytest.fixture(params=["cto", "coo"])
def teacher(home, request):
    return request.param, PartsPlan(home, load_settings(), {"service": "s"}).teacher(request.param).spec


def test_a_student_writes_in_its_own_folders_only(student, home):
    writable = {mount.source for mount in student.mounts if not mount.read_only}
    assert writable == {str(home.leaves / BEAD / name) for name in ("tree", "git", "outbox")}
    assert student.read_only


def test_a_student_sees_no_folder_of_the_school(student, home, tmp_path):
    own = (home.leaves / BEAD, home.gate / "sockets" / BEAD, tmp_path / "repo" / ".git" / "objects")
    for mount in student.mounts:
        assert any(Path(mount.source).is_relative_to(folder) for folder in own), mount
    assert student.network == "none"


@pytest.mark.parametrize("field", ["cto_verdict", "coo_verdict", "accepted", "cto_seal"])
def test_a_student_can_not_hand_in_a_verdict(field):
    bag = json.loads(make_submission(BEAD, output="done"))
    value = {"accepted": True, "cto_seal": {"v": 1}}.get(field, "PASS")
    with pytest.raises(BookbagError):
        check_submission(json.dumps({**bag, field: value}).encode(), BEAD)


def test_a_teacher_has_no_repository_no_engine_and_no_network(teacher, home):
    name, spec = teacher
    assert spec.network == "none"
    shared = {home.bookbags, home.signals, home.locks, home.evidence}
    own = {home.sessions / name, home.keys / f"seal-{name}.key", home.gate / "sockets" / f"teacher-{name}"}
    assert {Path(mount.source) for mount in spec.mounts} == shared | own


def test_a_teacher_can_not_change_what_it_judges(teacher, home):
    name, spec = teacher
    writable = {Path(mount.source) for mount in spec.mounts if not mount.read_only}
    assert writable == {home.bookbags, home.signals, home.locks, home.sessions / name}


def test_a_teacher_can_not_speak_for_its_colleague():
    said = {
        "verdict": "PASS",
        "score": 90,
        "confidence": 0.9,
        "findings": [],
        "ac_met": [],
        "summary": "s",
        "lens": "L",
    }
    said |= {"reviewed_at": "2026-01-01T00:00:00Z"}
    bag = new_bookbag(BEAD, {"head_sha": "a" * 40, "output": "o"}) | {f"coo_{name}": v for name, v in said.items()}
    digests = {"evidence_sha256": "e" * 64, "output_sha256": output_digest("o"), "mode": "async", "model": "m"}
    seal = make_seal(b"c" * 32, bead=BEAD, head_sha="a" * 40, teacher="coo", **said, **digests)
    verify_seal(b"c" * 32, {**bag, "coo_seal": seal}, "coo")
    with pytest.raises(SealError):
        verify_seal(b"o" * 32, {**bag, "coo_seal": seal}, "coo")


def test_a_teacher_is_not_told_its_colleagues_verdict():
    asked = []

    class Model:
        def complete(self, model, messages, *, bead, deadline):
            asked.extend(messages)
            raise KeyboardInterrupt

    evidence = _evidence()
    bag = {"bead": BEAD, "head_sha": "a" * 40, "output": "o", "coo_verdict": "FAIL", "coo_summary": "SAID BY THE COO"}
    with pytest.raises(KeyboardInterrupt):
        Reviewer("cto", Model(), "m", timeout=60).review(bag, evidence)
    assert asked
    assert "SAID BY THE COO" not in str(asked)


def _evidence():
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / BEAD
        place.mkdir()
        diff = b"diff --git a/a b/a\n+x\n"
        (place / "diff.patch").write_bytes(diff)
        index = {"v": 1, "bead": BEAD, "base_sha": "b" * 40, "head_sha": "a" * 40, "role": "coder", "task": "t"}
        index |= {"difficulty": "easy"}
        part = {"name": "diff.patch", "sha256": hashlib.sha256(diff).hexdigest(), "truncated": False}
        (place / "evidence.json").write_text(json.dumps({**index, "parts": [part]}))
        return read_evidence(Path(folder), BEAD)


def test_each_test_that_the_table_names_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "personas.md").read_text(encoding="utf-8"))
    assert len(named) > 8
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
