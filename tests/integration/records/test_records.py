"""Records and keys through the command line, on a whole school: a rotation between two beads."""

import json

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]


def test_records_hold_before_and_after_their_keys_were_changed(school, sample):
    first = school.spawn(sample, "Mend it.", "--agent", "command", "--command", "echo one > one.txt").report
    assert first["outcome"] == "accepted", first["reason"]
    checked = school.run("verify-record", first["bead"], "--json")
    assert checked.returncode == 0, checked.stdout
    assert {claim["state"] for claim in json.loads(checked.stdout)["claims"]} == {"holds"}
    rotated = school.run("keys", "rotate", "--json")
    assert rotated.returncode == 0, rotated.stderr
    assert [key["retired"] for key in json.loads(rotated.stdout)].count(False) == 2
    second = school.spawn(sample, "Mend it.", "--agent", "command", "--command", "echo two > two.txt").report
    assert (second["outcome"], second["review"]) == ("accepted", "async")  # the judges came back with the new keys
    for bead in (first["bead"], second["bead"]):
        assert school.run("verify-record", bead).returncode == 0
    path = next(school.home.archive.glob(f"{first['bead']}.json"))
    path.write_text(path.read_text().replace('"cto_verdict": "PASS"', '"cto_verdict": "FAIL"'))
    assert school.run("verify-record", first["bead"]).returncode == 1
