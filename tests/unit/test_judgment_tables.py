"""R-38 to R-46: every row of the tables in docs/judgment.md, put to the code."""

import importlib.util
import re
from pathlib import Path

import pytest

from orchestrator.errors import SchoolError
from orchestrator.home import home_at
from orchestrator.principal.acceptance import decide
from orchestrator.principal.director import READINESS, Director, self_rated
from orchestrator.principal.efc import DEMAND, Judged
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.routing import load_routing
from orchestrator.principal.scoring import GATES, START, evaluate_and_update
from orchestrator.principal.word import Words
from orchestrator.review.scoring import FLOORS, SEVERITIES, WEIGHTS, graded_as, score, verdict
from orchestrator.sandbox.outcome import Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "judgment.md"
TABLE = re.compile(r"<!-- table: (\w+) -->\n\|(.+)\|\n\|[-|]+\|\n((?:\|.+\|\n)+)")
TEXT = PAGE.read_text(encoding="utf-8")
TABLES = {
    name: [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in body.splitlines()]
    for name, _, body in TABLE.findall(TEXT)
}


def rows(name):
    return pytest.mark.parametrize("row", TABLES[name], ids=[" ".join(row) for row in TABLES[name]])


def listed(cell):
    return [] if cell == "none" else [part.strip() for part in cell.split(",")]


def test_every_table_is_read_and_every_one_is_checked_here():
    assert TEXT.count("<!-- table: ") == len(TABLES)
    checked = set(re.findall(r'@rows\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert checked == set(TABLES)


@rows("weights")
def test_weights_and_floors(row):
    graded = graded_as(row[0])
    assert [int(cell) for cell in row[1:5]] == list(WEIGHTS[graded])
    assert int(row[5]) == FLOORS[graded]


@rows("reviews")
def test_a_review(row):
    difficulty, findings, said, points, decided = row
    assert set(listed(findings)) <= set(SEVERITIES)
    assert score(listed(findings), difficulty) == int(points)
    assert verdict(listed(findings), said) == decided


@rows("acceptance")
def test_acceptance(row):
    bag = {"cto_findings": [{"severity": severity} for severity in listed(row[4])]}
    for teacher, (said, points) in {"cto": row[0:2], "coo": row[2:4]}.items():
        bag[f"{teacher}_verdict"] = "" if said == "none" else said
        bag[f"{teacher}_score"] = None if points == "none" else float(points)
    assert decide(bag, row[5]).accepted is (row[6] == "yes")


@rows("gates")
def test_gates(row):
    level = "diploma" if row[0] == "blocker" else row[0]
    assert (int(row[1]), int(row[2])) == (GATES[level], READINESS[level])


@rows("eligibility")
def test_eligibility(row, tmp_path):
    difficulty, points, readiness, eligible = row
    with Ledger(tmp_path / "l.db") as ledger:
        with ledger.transaction() as db:
            db.execute("INSERT INTO scores VALUES ('student-coder', ?, 0)", (float(points),))
        route = Director(ledger, load_routing()).route("Fix it", difficulty=difficulty, readiness=int(readiness))
    assert (route.profile is not None) is (eligible == "yes")
    assert bool(route.blocked) is (eligible == "no")


@rows("readiness")
def test_readiness(row):
    past = [
        Judged(str(number), "general", difficulty, "accepted" if end == "accepted" else "rejected")
        for number, (difficulty, end) in enumerate(entry.split() for entry in listed(row[0]))
    ]
    assert self_rated(past, row[1]) == int(row[2])


@rows("scores")
def test_scores(row, tmp_path):
    outcome, teachers, old, new = row
    with Ledger(tmp_path / "l.db") as ledger:
        with ledger.transaction() as db:
            db.execute("INSERT INTO scores VALUES ('p', ?, 0)", (float(old),))
        given = tuple(float(value) for value in listed(teachers)) or None
        change = evaluate_and_update(ledger, "p", "b1", Outcome(outcome), teachers=given)
    assert (change is None) is (new == "unchanged")
    if change is not None:
        assert change.new == pytest.approx(float(new))


def test_every_outcome_stands_in_the_table_of_scores():
    assert {row[0] for row in TABLES["scores"]} == set(Outcome)


def test_the_numbers_in_the_sentences():
    assert f"A new profile starts at {START:g}" in " ".join(TEXT.split())
    assert [DEMAND[name] for name in ("easy", "medium", "hard", "diploma")] == [1, 2, 4, 8]


SPEC = importlib.util.spec_from_file_location("accepted_bead", Path(__file__).with_name("principal") / "accepted.py")
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)


@rows("word")
def test_a_persons_word(row, tmp_path):
    for command, expected in zip(("approve", "reject", "fix"), row[1:], strict=True):
        home = home_at(tmp_path / command).ensure()
        bead = MODULE.Accepted(home, tmp_path / f"{command}-repo")
        words = Words(home, bead.ledger, fix_rounds=3)

        def say(which, bead=bead, words=words):
            if which == "approve":
                return words.approve(bead.bead, bead.head, via="t")
            return (
                words.decline(bead.bead, "no", via="t")
                if which == "reject"
                else words.request_fix(bead.bead, "n", via="t")
            )

        before = {"approved": "approve", "declined": "reject", "fix_requested": "fix"}.get(row[0])
        if before:
            say(before)
        elif row[0] == "rejected":
            bead.ledger.update_bead(bead.bead, outcome="rejected", human=None)
        if expected == "refused":
            with pytest.raises(SchoolError):
                say(command)
        else:
            given = say(command)
            assert (given.repeated, given.state) == (expected == "again", row[0] if expected == "again" else expected)
        bead.ledger.close()
