"""The limits of a plugin hold, and a plugin over them leaves nothing behind (R-63)."""

from __future__ import annotations

import contextlib

import pytest

from orchestrator.errors import ConfigError, StaffLimitError, UsageError
from orchestrator.staff import StaffResult, StaffSandbox, Trust, load_plugins, run_plugin
from orchestrator.staff.registry import allowed_plugins
from orchestrator.staff.sandbox import PluginStopped


class Plugin:
    """A plugin of somebody's."""

    name = "theirs"

    def __init__(self, do, trust=Trust.VERIFIED, health=""):
        self.do, self.trust, self.health = do, trust, health

    def health_check(self):
        return self.health

    def run(self, sandbox, ctx):
        self.do(sandbox)
        return StaffResult(("looked",))


def events(school, kind):
    return [event for event in school.ledger.events() if event["kind"] == kind]


READS, WRITES = {"verified": 500, "community": 100, "untrusted": 20}, {"verified": 50, "community": 5, "untrusted": 0}


@pytest.mark.parametrize(("trust", "most"), READS.items())
def test_as_many_reads_as_the_trust_allows_and_not_one_more_r63(school, trust, most):
    def read(count):
        return Plugin(lambda sandbox: [sandbox.bookbag("none-1") for _ in range(count)], Trust(trust))

    assert run_plugin(read(most), school.records, school.ctx).status == "ok"
    over = run_plugin(read(most + 1), school.records, school.ctx)
    assert (over.status, over.reason) == ("stopped", f"more than {most} reads")


@pytest.mark.parametrize(("trust", "most"), WRITES.items())
def test_as_many_writes_as_the_trust_allows_and_not_one_more_r63(school, trust, most):
    def write(count):
        return Plugin(lambda sandbox: [sandbox.note("n") for _ in range(count)], Trust(trust))

    assert run_plugin(write(most), school.records, school.ctx).applied
    assert len(events(school, "staff.note")) == most
    over = run_plugin(write(most + 1), school.records, school.ctx)
    assert (over.status, over.applied, over.reason) == ("stopped", False, f"more than {most} writes")
    assert len(events(school, "staff.note")) == most  # of what was asked for before the limit, nothing was done


def test_core_has_no_limit_r63(school):
    def do(sandbox):
        for _ in range(600):
            sandbox.bookbag("none-1")
            sandbox.note("n")

    assert run_plugin(Plugin(do, Trust.CORE), school.records, school.ctx).applied


def test_each_row_counts_as_a_read(school):
    for number in range(30):
        school.bead(f"b-{number}")
    fits = run_plugin(Plugin(lambda sandbox: sandbox.beads(20), Trust.UNTRUSTED), school.records, school.ctx)
    assert (fits.status, fits.reads) == ("ok", 20)
    over = run_plugin(Plugin(lambda sandbox: sandbox.beads(1000), Trust.UNTRUSTED), school.records, school.ctx)
    assert over.status == "stopped"


@pytest.mark.parametrize("caught", [Exception, BaseException])
def test_a_plugin_that_catches_what_stops_it_is_stopped_all_the_same_r63(school, caught):
    kept = school.file(school.home.signals, "x.ready")

    def do(sandbox):
        sandbox.remove("signals", "x.ready")
        for _ in range(100):
            with contextlib.suppress(caught):
                sandbox.note("n")

    run = run_plugin(Plugin(do, Trust.COMMUNITY), school.records, school.ctx)
    assert (run.status, run.applied, run.effects) == ("stopped", False, [])
    assert kept.exists()
    assert events(school, "staff.note") == []


def test_a_sandbox_that_was_stopped_commits_nothing(school):
    sandbox = StaffSandbox(school.records, Trust.UNTRUSTED)
    with pytest.raises(PluginStopped):
        sandbox.note("n")
    with pytest.raises(PluginStopped):
        sandbox.bookbag("none-1")
    with pytest.raises(StaffLimitError, match="more than 0 writes"):
        sandbox.commit("x")


def test_a_plugin_that_fails_leaves_nothing_behind_and_says_why(school):
    def do(sandbox):
        sandbox.note("n")
        raise ZeroDivisionError("oh")

    run = run_plugin(Plugin(do), school.records, school.ctx)
    assert (run.status, run.reason, run.applied) == ("failed", "ZeroDivisionError: oh", False)
    assert events(school, "staff.note") == []
    assert events(school, "staff.run")[0]["status"] == "failed"


def test_a_plugin_that_is_not_healthy_does_not_run(school):
    def do(sandbox):
        raise AssertionError

    run = run_plugin(Plugin(do, health="no key"), school.records, school.ctx)
    assert (run.status, run.reason) == ("unhealthy", "no key")


# -- scores --------------------------------------------------------------------------------------------------------


def change(*deltas, trust=Trust.VERIFIED):
    return Plugin(lambda sandbox: [sandbox.change_score("coder", delta, "why") for delta in deltas], trust)


@pytest.mark.parametrize(("deltas", "new"), [((10,), 60), ((-10,), 40), ((4, 6), 60), ((10, -5), 55), ((0.5,), 50.5)])
def test_a_change_of_up_to_ten_points_is_made_and_kept_with_its_cause_r63(school, deltas, new):
    run = run_plugin(change(*deltas), school.records, school.ctx)
    assert run.applied
    assert school.score("coder") == new
    kept = school.records.score_changes(10)[-1]
    assert (kept["old"], kept["new"], kept["bead"]) == (50, new, None)
    assert kept["cause"].startswith("staff theirs: why")


@pytest.mark.parametrize("deltas", [(10.5,), (-15,), (6, 6)])
def test_a_larger_one_is_only_proposed_to_a_person_r63(school, deltas):
    run = run_plugin(change(*deltas), school.records, school.ctx)
    assert [proposal["profile"] for proposal in run.proposals] == ["coder"]
    assert run.proposals[0]["delta"] == sum(deltas)
    assert school.records.scores(10) == []
    assert events(school, "staff.run")[0]["proposals"] == run.proposals


@pytest.mark.parametrize("deltas", [(15.1,), (-16,), (8, 8), (float("nan"),), (float("inf"),)])
def test_more_than_fifteen_points_stop_the_plugin_r63(school, deltas):
    run = run_plugin(change(*deltas), school.records, school.ctx)
    assert (run.status, run.applied) == ("stopped", False)
    assert school.records.scores(10) == []


def test_a_community_plugin_has_no_right_to_scores_r63(school):
    run = run_plugin(change(1, trust=Trust.COMMUNITY), school.records, school.ctx)
    assert (run.status, run.reason) == ("stopped", "a community plugin has no right to change scores")


# -- reach ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(school):
    kept = school.file(school.home.signals, "x.ready")
    before = school.ledger.events()
    run = run_plugin(
        Plugin(lambda sandbox: (sandbox.remove("signals", "x.ready"), sandbox.change_score("coder", 5, "why"))),
        school.records,
        school.ctx,
        dry_run=True,
    )
    assert run.effects == ["remove signals/x.ready", "score of coder +5: why"]
    assert (run.applied, kept.exists()) == (False, True)
    assert school.ledger.events() == before
    assert school.records.scores(10) == []


@pytest.mark.parametrize("name", ["../ledger.db", "", ".", "..", "a/b", "a\0b"])
def test_nothing_outside_of_an_area_can_be_reached(school, name):
    with pytest.raises(UsageError):
        StaffSandbox(school.records, Trust.CORE).read("signals", name)
    for area in ("signals", "keys"):
        run = run_plugin(Plugin(lambda sandbox, area=area: sandbox.remove(area, name)), school.records, school.ctx)
        assert (run.status, run.effects) == ("failed", [])
    with pytest.raises(UsageError, match="no area"):
        StaffSandbox(school.records, Trust.CORE).names("keys")


def test_a_link_in_an_area_is_not_followed(school, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    (school.home.signals / "x").symlink_to(secret)
    assert school.records.names("signals") == []


def test_what_could_not_be_carried_out_is_said(school):
    (school.home.signals / "x").mkdir()
    run = run_plugin(Plugin(lambda sandbox: sandbox.remove("signals", "x")), school.records, school.ctx)
    assert (run.status, run.applied) == ("failed", False)
    assert "could not all be carried out" in run.reason


def test_the_ledger_does_not_grow_by_runs_that_say_nothing_new(school):
    quiet = Plugin(lambda sandbox: None)
    quiet.run = lambda sandbox, ctx: StaffResult()
    for _ in range(3):
        run_plugin(quiet, school.records, school.ctx)
    assert events(school, "staff.run") == []
    for _ in range(3):
        run_plugin(Plugin(lambda sandbox: None), school.records, school.ctx)
    assert [event["findings"] for event in events(school, "staff.run")] == [["looked"]]
    for _ in range(2):
        run_plugin(quiet, school.records, school.ctx)
    assert [event["findings"] for event in events(school, "staff.run")] == [["looked"], []]


# -- who may run ---------------------------------------------------------------------------------------------------


class Point:
    """An entry point."""

    def __init__(self, name, make):
        self.name, self.make, self.loaded = name, make, False

    def load(self):
        self.loaded = True
        return self.make


def theirs(trust):
    return lambda: Plugin(lambda sandbox: None, trust)


def test_the_four_ship_and_nothing_else_runs_unless_it_is_named(school):
    point = Point("theirs", theirs(Trust.CORE))
    assert list(load_plugins("", found=[point])) == [
        "janitor",
        "session_manager",
        "score_auditor",
        "adversarial_reviewer",
    ]
    assert not point.loaded  # its code is not even imported


@pytest.mark.parametrize(
    ("granted", "claimed", "counts"),
    [
        ("theirs", Trust.CORE, "untrusted"),
        ("theirs:community", Trust.CORE, "community"),
        ("theirs:verified", Trust.COMMUNITY, "community"),
        ("theirs:verified", Trust.VERIFIED, "verified"),
    ],
)
def test_a_plugin_is_trusted_no_further_than_a_person_granted(school, granted, claimed, counts):
    plugin, trust = load_plugins(granted, found=[Point("theirs", theirs(claimed))])["theirs"]
    assert trust == counts
    assert run_plugin(plugin, school.records, school.ctx, granted=trust).trust == counts


@pytest.mark.parametrize("setting", ["theirs:core", "theirs:king", ":verified", "janitor:verified"])
def test_a_grant_that_cannot_be_given_is_refused(setting):
    with pytest.raises(ConfigError):
        allowed_plugins(setting)


def broken():
    raise ZeroDivisionError


@pytest.mark.parametrize(("points", "says"), [([], "no staff plugin"), ([Point("theirs", broken)], "can't be loaded")])
def test_a_named_plugin_that_is_not_there_is_a_clear_error(points, says):
    with pytest.raises(ConfigError, match=says):
        load_plugins("theirs", found=points)
