"""A record re-checked from its archive (R-39, R-44), and keys that change under it."""

import hashlib
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from orchestrator import bookbag
from orchestrator.engine.fake import FakeEngine
from orchestrator.errors import UsageError
from orchestrator.home import home_at
from orchestrator.principal import keys
from orchestrator.principal.standing import why_not_accepted
from orchestrator.principal.verify_record import verify_record

_spec = importlib.util.spec_from_file_location("accepted", Path(__file__).parent / "accepted.py")
accepted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(accepted)


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


@pytest.fixture
def bead(home, tmp_path):
    made = accepted.Accepted(home, tmp_path / "repo")
    yield made
    made.ledger.close()


def states(home, bead):
    return {claim.name: claim.state for claim in verify_record(home, bead.ledger.bead(bead.bead))}


def rewrite(home, bead, /, **changes):
    path = home.archive / f"{bead.bead}.json"
    path.write_text(json.dumps({**bead.bag, **changes}))


def test_an_honest_record_holds_in_every_claim(home, bead):
    assert set(states(home, bead).values()) == {"holds"}


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"cto_score": 100}, {"cto's seal"}),
        ({"coo_verdict": "FAIL"}, {"coo's seal", "acceptance"}),
        ({"output": "another"}, {"cto's seal", "coo's seal"}),
        ({"head_sha": "b" * 40}, {"commit", "cto's seal", "coo's seal"}),
        ({"base_sha": "b" * 40}, {"base"}),
        ({"accepted": False}, {"acceptance"}),
        ({"cto_seal": None}, {"cto's seal"}),
        ({"cto_findings": [{"severity": "CRITICAL"}]}, {"cto's seal", "acceptance"}),
    ],
)
def test_a_changed_record_breaks_where_it_was_changed(home, bead, change, broken):
    rewrite(home, bead, **change)
    found = states(home, bead)
    assert {name for name, state in found.items() if state == "broken"} == broken


def test_changed_evidence_is_found_and_missing_evidence_is_unknown(home, bead):
    path = home.evidence / bead.bead / "evidence.json"
    path.write_bytes(path.read_bytes() + b" ")
    assert states(home, bead)["evidence"] == "broken"
    path.unlink()
    assert states(home, bead)["evidence"] == "unknown"
    path.symlink_to("/etc/passwd")
    assert states(home, bead)["evidence"] == "broken"


def test_each_part_of_the_evidence_is_compared(home, bead, monkeypatch):
    folder = home.evidence / bead.bead
    (folder / "files").mkdir()
    (folder / "files" / "0").write_text("one")
    parts = [{"name": "files/0", "sha256": hashlib.sha256(b"one").hexdigest()}]
    raw = json.dumps({"v": 1, "bead": bead.bead, "parts": parts}).encode()
    (folder / "evidence.json").write_bytes(raw)
    bag = {**bead.bag, **{f"{t}_seal": {**bead.bag[f"{t}_seal"], "evidence_sha256": hashlib.sha256(raw).hexdigest()} for t in ("cto", "coo")}}  # fmt: skip
    rewrite(home, bead, **bag)
    monkeypatch.setattr(bookbag, "verify_seal", lambda *_: None)  # about the parts alone
    assert states(home, bead)["evidence"] == "holds"
    (folder / "files" / "0").write_text("two")
    assert states(home, bead)["evidence"] == "broken"
    (folder / "files" / "0").unlink()
    assert states(home, bead)["evidence"] == "broken"


def test_moved_refs_are_found(home, bead):
    subprocess.run(["git", "-C", str(bead.repo), "update-ref", f"refs/school/{bead.bead}", "HEAD"], check=True)
    assert states(home, bead)["repository"] == "broken"


def test_no_record_and_nonsense_are_broken(home, bead):
    (home.archive / f"{bead.bead}.json").write_text("{")
    assert states(home, bead) == {"record": "broken"}
    (home.archive / f"{bead.bead}.json").unlink()
    assert states(home, bead) == {"record": "broken"}


def test_old_records_outlive_a_rotation(home, bead):
    before = {key.teacher: key.key_id for key in keys.listed(home)}
    after = keys.rotate(home, FakeEngine(), open_beads=[])
    assert [key.retired for key in after] == [False, True, False, True]
    assert {key.key_id for key in after if key.retired} == set(before.values())
    assert not {key.key_id for key in after if not key.retired} & set(before.values())
    assert set(states(home, bead).values()) == {"holds"}
    assert why_not_accepted(home, bead.ledger.bead(bead.bead)) == ""
    assert keys.check_key_files(home) == []


def test_a_forgotten_key_proves_nothing_any_more(home, bead):
    keys.rotate(home, None, open_beads=[])
    keys.rotate(home, None, open_beads=[], forget=True)
    assert [key.retired for key in keys.listed(home)] == [False, False]
    found = states(home, bead)
    assert (found["cto's seal"], found["coo's seal"]) == ("broken", "broken")


def test_keys_are_not_changed_under_a_bead_that_is_not_done(home, bead):
    before = keys.listed(home)
    with pytest.raises(UsageError, match="not done"):
        keys.rotate(home, None, open_beads=["coder-general-00000001"])
    assert keys.listed(home) == before


def test_a_home_without_keys_has_nothing_to_rotate(tmp_path):
    with pytest.raises(UsageError, match="no seal keys"):
        keys.rotate(home_at(tmp_path / "new").ensure(), None, open_beads=[])


def test_a_key_that_others_may_read_is_named(home, bead):
    keys.in_force(home, "cto").chmod(0o644)
    assert len(keys.check_key_files(home)) == 1
