from __future__ import annotations

import os
import time

import pytest

from orchestrator.bookbag import Dirs, new_bookbag, write_bookbag
from orchestrator.home import home_at
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.report import Report
from orchestrator.sandbox.outcome import Outcome
from orchestrator.staff import StaffContext
from orchestrator.staff.records import Records


class School:
    """A home with a ledger, and what a test puts into them."""

    def __init__(self, home, ledger):
        self.home = home
        self.ledger = ledger
        self.records = Records(home, ledger)
        self.ctx = StaffContext(now=time.time())
        self.dirs = Dirs(home.bookbags, home.signals, home.locks)

    def bead(self, name, *, ended=True, **report):
        self.ledger.open_bead(name, repo="/r", base_sha="a" * 40, data={})
        if ended:
            values = {"outcome": "accepted", "scores": {"cto": 90, "coo": 90}, **report}
            self.ledger.update_bead(
                name, status="ended", outcome=values["outcome"], data={"report": Report(name, **values).to_json()}
            )

    def bookbag(self, name):
        write_bookbag(name, new_bookbag(name, {}), dirs=self.dirs)

    def file(self, folder, name, *, age=0.0, content=b"x"):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_bytes(content)
        os.utime(path, (time.time() - age,) * 2)
        return path

    def scored(self, profile, *beads):
        from orchestrator.principal.scoring import evaluate_and_update

        for bead in beads:
            evaluate_and_update(self.ledger, profile, bead, Outcome.ACCEPTED, teachers=(90, 90))

    def set_score(self, profile, score):
        with self.ledger.transaction() as db:
            db.execute("UPDATE scores SET score=? WHERE profile=?", (score, profile))

    def score(self, profile):
        return next(row["score"] for row in self.records.scores(100) if row["profile"] == profile)


@pytest.fixture
def school(tmp_path):
    home = home_at(tmp_path / "home").ensure()
    with Ledger(home.ledger) as ledger:
        yield School(home, ledger)
