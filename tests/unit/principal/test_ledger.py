"""The ledger keeps what was intended, and several writers at once lose nothing."""

import sqlite3
import subprocess
import sys

import pytest

from orchestrator.errors import LedgerError
from orchestrator.principal.ledger import SCHEMA_VERSION, Ledger


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def test_a_bead_is_opened_updated_and_read_back(ledger):
    ledger.open_bead("coder-a-00000001", repo="/r", base_sha="b" * 40, data={"branch": "x"})
    ledger.update_bead("coder-a-00000001", event="outcome", outcome="accepted", data={"reason": "good"})
    row = ledger.bead("coder-a-00000001")
    assert row["outcome"] == "accepted"
    assert row["data"] == {"branch": "x", "reason": "good"}
    assert [event["kind"] for event in ledger.events("coder-a-00000001")] == ["opened", "outcome"]


def test_a_bead_is_opened_once(ledger):
    ledger.open_bead("b1", repo="/r", base_sha="", data={})
    with pytest.raises(LedgerError, match="exists already"):
        ledger.open_bead("b1", repo="/r", base_sha="", data={})


def test_an_unknown_bead_or_column_is_refused(ledger):
    with pytest.raises(LedgerError, match="not in"):
        ledger.update_bead("nobody", outcome="accepted")
    with pytest.raises(LedgerError, match="Not columns"):
        ledger.update_bead("nobody", colour="x")


def test_events_can_not_be_changed(ledger, tmp_path):
    ledger.event("b1", "intent", step="worktree")
    database = sqlite3.connect(tmp_path / "ledger.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute("UPDATE events SET kind='other'")
    database.close()


def test_a_bead_whose_removal_is_open_counts_as_running(ledger):
    ledger.open_bead("b1", repo="/r", base_sha="", data={})
    ledger.update_bead("b1", status="ended", cleanup="failed")
    ledger.open_bead("b2", repo="/r", base_sha="", data={})
    ledger.update_bead("b2", status="ended", cleanup="done")
    assert [row["bead"] for row in ledger.beads(running=True)] == ["b1"]
    assert {row["bead"] for row in ledger.beads(running=False)} == {"b1", "b2"}


def test_a_failed_transaction_leaves_nothing(ledger):
    with pytest.raises(ZeroDivisionError), ledger.transaction() as database:
        database.execute("INSERT INTO scores VALUES ('p', 1, 1)")
        raise ZeroDivisionError
    with ledger.transaction() as database:
        assert database.execute("SELECT count(*) FROM scores").fetchone()[0] == 0


def test_a_ledger_of_a_newer_program_is_not_touched(tmp_path):
    path = tmp_path / "ledger.db"
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(LedgerError, match="newer"):
        Ledger(path)


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path):
    (tmp_path / "ledger.db").write_text("hello, I am not a database at all " * 100)
    with pytest.raises(LedgerError, match="can't be opened"):
        Ledger(tmp_path / "ledger.db")


def test_six_processes_write_at_once_and_nothing_is_lost(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).close()
    program = (
        "import sys; from pathlib import Path; from orchestrator.principal.ledger import Ledger\n"
        "with Ledger(Path(sys.argv[1])) as l:\n  [l.event(sys.argv[2], 'intent', n=n) for n in range(40)]"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), f"b{n}"]) for n in range(6)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 6
    with Ledger(path) as ledger:
        for number in range(6):
            assert [event["n"] for event in ledger.events(f"b{number}")] == list(range(40))
