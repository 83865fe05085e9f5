"""R-40 to R-42: rules that say what decided, gates, readiness, and the best profile first."""

import pytest

from orchestrator.errors import BlockedError, ConfigError
from orchestrator.home import home_at
from orchestrator.principal.director import Director, ModelAnswer, director_of, self_rated, settle
from orchestrator.principal.director_model import parse
from orchestrator.principal.efc import DEMAND, Judged, efc_of, feedback_of, history, record
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.request import SpawnRequest
from orchestrator.principal.routing import load_routing
from orchestrator.principal.scoring import changes, evaluate_and_update, scores
from orchestrator.sandbox.outcome import Outcome

ASK_NOBODY = None


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


@pytest.fixture
def ledger(home):
    with Ledger(home.ledger) as opened:
        yield opened


def own_rules(home, text):
    (home.school / "routing.yaml").write_text("version: 1\n" + text)
    return load_routing(home)


def finding(issue="naming", place="a.py:3", teacher="cto", **more):
    return {"teacher": teacher, "issue_class": issue, "citation": place, "description": "d", "suggestion": "s", **more}


def judge(ledger, bead, outcome=Outcome.ACCEPTED, *findings, profile="student-coder", difficulty="medium", **more):
    given = {"domain": "general", "check": "passed", "paths": ["a.py"], **more}
    return record(
        ledger, bead, profile=profile, difficulty=difficulty, outcome=outcome, findings=findings, **given
    )  # fmt: skip


# -- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "labels", "role", "domain", "difficulty"),
    [
        ("Fix the typo in README", [], "coder", "docs", "easy"),
        ("Where is the add function defined?", [], "searcher", "general", "easy"),
        ("Please explain how sessions expire", [], "searcher", "general", "medium"),
        ("Review the login for SQL injection", [], "reviewer", "security", "medium"),
        ("Run the benchmarks and tell what they print", [], "executor", "general", "medium"),
        ("Fix the deadlock in the worker pool", [], "coder", "general", "hard"),
        ("Redesign the storage layer", [], "coder", "general", "diploma"),
        ("Something odd", ["Docs", "good first issue"], "coder", "docs", "easy"),
        ("Something odd", ["question"], "searcher", "general", "medium"),
        ("Rename a variable", ["blocker"], "coder", "general", "blocker"),
        ("Address the problem of addresses", [], "coder", "general", "medium"),  # no word inside a word
    ],
)
def test_a_task_is_classified_by_rules_that_say_so(task, labels, role, domain, difficulty):
    route = Director(None, load_routing()).route(task, labels=labels)
    assert (route.role.value, route.domain.value, route.difficulty.value) == (role, domain, difficulty)
    for answer in (route.role, route.domain, route.difficulty):
        assert answer.by.endswith(")") if answer.certain else "default" in answer.by


def test_a_homes_own_rules_come_first_and_are_named(home):
    routing = own_rules(
        home,
        """
roles:
  - {name: ours, words: [frobnic*], role: executor}
profiles:
  student-strong: {role: coder, model: auto/strong, domains: [security]}
""",
    )
    route = Director(None, routing).route("Fix the frobnicator")
    assert route.role.value == "executor"
    assert "ours (“frobnicator”)" in route.role.by
    assert route.files[0].startswith(str(home.school))
    assert "student-strong" in routing.profiles
    assert [c.profile for c in Director(None, routing).route("Fix the password check").candidates] == [
        "student-coder", "student-strong",
    ]  # fmt: skip
    assert [c.profile for c in Director(None, routing).route("Fix the layout").candidates] == ["student-coder"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("roles: {a: b}", "roles: it is not a list"),
        ("roles: [{name: x, words: [a], role: wizard}]", r"roles\[0\]: role is 'wizard'"),
        ("roles: [{name: x, role: coder}]", "no condition"),
        ("roles: [{words: [a], role: coder}]", "no name"),
        ("roles: [{name: x, words: [], role: coder}]", "not a list of texts"),
        ("roles: [{name: x, wrods: [a], role: coder}]", "unknown keys: wrods"),
        ("roles: [{name: x, words: [a], domain: docs}]", "unknown keys: domain"),
        ("domains: [{name: x, words: [a], domain: 'two words'}]", "one word"),
        ("difficulties: [{name: x, longer_than: many, difficulty: hard}]", "number of characters"),
        ("rules: []", "unknown sections: rules"),
        ("profiles: {student-x: {role: nobody}}", r"profiles.student-x: role"),
        ("profiles: {student-x: {role: coder, agent: vim}}", "agent is 'vim'"),
        ("profiles: {'a b': {role: coder}}", "profile's name"),
        ("a: [", "can't be read"),
    ],
)
def test_a_rule_that_can_not_be_understood_is_an_error_with_its_place(home, text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        own_rules(home, text)
    assert str(home.school / "routing.yaml") in caught.value.message


# -- the one model call -------------------------------------------------------------------------------------------------


def test_a_model_is_asked_only_where_no_rule_can_tell():
    asked = []

    def ask(task):
        asked.append(task)
        return ModelAnswer("searcher", "parsing", "hard", 9, "auto/x")

    director = Director(None, load_routing(), ask)
    sure = director.route("Fix the typo in the readme")
    assert (sure.role.value, asked) == ("coder", [])
    unsure = director.route("Something odd")
    assert asked == ["Something odd"]
    assert (unsure.role.value, unsure.domain.value, unsure.difficulty.value) == ("searcher", "parsing", "hard")
    assert "auto/x says so" in unsure.role.by
    assert unsure.candidates[0].readiness == 9


def test_what_a_model_says_is_taken_only_in_the_schools_own_words():
    said = ModelAnswer("root", "../../etc", "impossible", None, "m")
    route = Director(None, load_routing(), lambda _: said).route("Something odd")
    assert (route.role.value, route.difficulty.value) == ("coder", "medium")
    assert route.domain.value == "etc"


@pytest.mark.parametrize("text", ["no", "{broken", "[1]"])
def test_an_answer_without_an_object_is_none(text):
    from orchestrator.errors import ModelCallError

    with pytest.raises(ModelCallError):
        parse(text, "m")


def test_a_models_answer_is_read_out_of_its_talk():
    said = parse('Sure: {"role": "Coder", "difficulty": 3, "readiness": 11, "domain": "db"} done', "m")
    assert said == ModelAnswer("coder", "db", None, None, "m")


# -- gates and eligibility (R-40) ----------------------------------------------------------------------------------------


def set_score(ledger, profile, value):
    with ledger.transaction() as db:
        db.execute("INSERT OR REPLACE INTO scores VALUES (?,?,0)", (profile, value))


@pytest.mark.parametrize(
    ("difficulty", "at", "below"),
    [("medium", 25, 24.9), ("hard", 50, 49.9), ("diploma", 75, 74.9), ("blocker", 75, 74)],
)
def test_a_gate_lets_in_at_its_score_and_not_below(ledger, home, difficulty, at, below):
    director = director_of(home, ledger)
    set_score(ledger, "student-coder", at)
    assert director.route("x", difficulty=difficulty).profile.name == "student-coder"
    set_score(ledger, "student-coder", below)
    blocked = director.route("x", difficulty=difficulty)
    assert blocked.profile is None
    assert "below the gate" in blocked.blocked


def test_easy_has_no_gate_and_a_new_profile_passes_hard_but_not_diploma(ledger, home):
    director = director_of(home, ledger)
    assert director.route("x", difficulty="hard").profile is not None
    assert director.route("x", difficulty="diploma").profile is None
    set_score(ledger, "student-coder", 0)
    assert director.route("x", difficulty="easy").profile is not None


@pytest.mark.parametrize(("difficulty", "needed"), [("easy", 3), ("medium", 5), ("hard", 7), ("diploma", 8)])
def test_readiness_must_be_reached(ledger, home, difficulty, needed):
    set_score(ledger, "student-coder", 100)
    director = director_of(home, ledger)
    assert director.route("x", difficulty=difficulty, readiness=needed).profile is not None
    blocked = director.route("x", difficulty=difficulty, readiness=needed - 1)
    assert blocked.profile is None
    assert f"readiness {needed - 1} is below {needed}" in blocked.blocked


def test_a_role_given_by_a_person_skips_eligibility(ledger, home):
    set_score(ledger, "student-coder", 0)
    request = SpawnRequest(repo=".", task="Redesign everything")
    with pytest.raises(BlockedError, match="Nobody is eligible") as caught:
        settle(request, director_of(home, ledger), role=None, domain=None, difficulty=None)
    assert caught.value.exit_code == 10
    done = settle(request, director_of(home, ledger), role="coder", domain=None, difficulty=None)
    assert (done.role, done.difficulty, done.profile_name) == ("coder", "diploma", "student-coder")


def test_the_best_is_first_and_efc_breaks_the_tie(ledger, home):
    own_rules(home, "profiles:\n  student-a: {role: coder, model: auto/a}\n  student-b: {role: coder, agent: light}\n")
    set_score(ledger, "student-a", 60)
    set_score(ledger, "student-b", 60)
    director = director_of(home, ledger)
    assert [c.profile for c in director.route("Fix it").candidates] == ["student-a", "student-b", "student-coder"]
    judge(ledger, "b1", Outcome.REJECTED, finding(), profile="student-b")
    judge(ledger, "b2", Outcome.ACCEPTED, finding("other"), profile="student-b")
    assert efc_of(ledger, profile="student-b").value > 0
    assert [c.profile for c in director.route("Fix it").candidates] == ["student-b", "student-a", "student-coder"]
    set_score(ledger, "student-a", 61)
    taken = settle(SpawnRequest(repo=".", task="Fix it"), director, role=None, domain=None, difficulty=None)
    assert (taken.profile, taken.model, taken.role) == ("student-a", "auto/a", "coder")
    assert "student-a (score 61.0" in taken.routed


def test_readiness_falls_with_failures_and_comes_back_with_success():
    def past(*outcomes, difficulty="medium"):
        return [Judged(str(n), "general", difficulty, o) for n, o in enumerate(outcomes)]

    assert self_rated([], "diploma") == 8
    assert self_rated(past("rejected"), "medium") == 5
    assert self_rated(past("rejected", "timed_out"), "medium") == 4
    assert self_rated(past("rejected", "accepted", "accepted"), "medium") > 5
    assert self_rated(past("rejected", "rejected"), "easy") == 8  # failing at harder work tells nothing of easier
    assert self_rated(past("accepted", "accepted"), "hard") == 8  # nor does success at easier work of harder
    assert self_rated(past("rejected"), "hard") == 5
    assert self_rated(past(*["rejected"] * 40), "medium") >= 1


# -- EFC (R-42) ------------------------------------------------------------------------------------------------------------


def inputs(ledger, bead):
    return [(f["informative"], f["valid"], f["non_redundant"], f["retained"]) for f in feedback_of(ledger, bead)]


def test_each_feedback_event_is_recorded_with_its_inputs(ledger):
    judge(
        ledger,
        "b1",
        Outcome.REJECTED,
        finding(),
        finding(teacher="coo"),  # the other judge says the same of the same place
        finding("invented", "no/such/file.py:1"),
        finding("vague", "", description="", suggestion=""),
        check="failed",
    )
    assert inputs(ledger, "b1") == [
        (True, True, True, None),
        (True, True, False, None),
        (True, False, True, None),
        (False, True, True, None),
        (True, True, True, None),
    ]
    figure = efc_of(ledger, bead="b1")
    assert (figure.events, figure.effective, figure.open, figure.demand) == (5, 0, 2, DEMAND["medium"])


def test_a_fix_round_tells_what_was_retained_and_nothing_twice(ledger):
    judge(ledger, "b1", Outcome.REJECTED, finding("naming"), finding("tests", "a.py:9"))
    judge(ledger, "b2", Outcome.ACCEPTED, finding("tests", "a.py:12"), fixes="b1")
    assert [f["retained"] for f in feedback_of(ledger, "b1")] == [True, False]
    assert {f["told_by"] for f in feedback_of(ledger, "b1")} == {"b2"}
    assert inputs(ledger, "b2") == [(False, True, True, None)]  # it was in the brief already
    assert efc_of(ledger, bead="b1").value == pytest.approx(1 / DEMAND["medium"])


def test_the_next_bead_of_the_same_profile_and_domain_tells(ledger):
    judge(ledger, "b1", Outcome.REJECTED, finding("naming"), finding("tests"))
    judge(ledger, "b2", Outcome.ACCEPTED, profile="student-executor")
    judge(ledger, "b3", Outcome.ACCEPTED, domain="docs")
    assert [f["retained"] for f in feedback_of(ledger, "b1")] == [None, None]
    judge(ledger, "b4", Outcome.REJECTED, finding("naming", "other.py"))
    assert [f["retained"] for f in feedback_of(ledger, "b1")] == [False, True]


def test_a_bead_is_recorded_once_and_only_when_its_end_is_the_students(ledger):
    assert judge(ledger, "b1", Outcome.REJECTED, finding())
    assert not judge(ledger, "b1", Outcome.REJECTED, finding())
    assert len(feedback_of(ledger, "b1")) == 1
    assert not judge(ledger, "b2", Outcome.LOST)
    assert not judge(ledger, "b3", Outcome.CANCELLED)
    assert judge(ledger, "b4", Outcome.TIMED_OUT, finding())
    assert feedback_of(ledger, "b4") == []
    assert [past.bead for past in history(ledger, "student-coder")] == ["b4", "b1"]


# -- the score store ---------------------------------------------------------------------------------------------------------


def test_each_change_names_bead_old_new_and_cause(ledger):
    evaluate_and_update(ledger, "student-coder", "b1", Outcome.ACCEPTED, teachers=(100, 90))
    evaluate_and_update(ledger, "student-coder", "b2", Outcome.TIMED_OUT, teachers=None)
    second, first = changes(ledger, profile="student-coder")
    assert (first["bead"], first["old"], second["old"], second["new"]) == (
        "b1",
        50,
        first["new"],
        scores(ledger)["student-coder"],
    )
    assert "accepted" in first["cause"]
    assert "timed_out" in second["cause"]
    assert changes(ledger, bead="b1") == [first]


def test_a_ledger_of_the_first_version_gains_the_new_tables(home):
    import sqlite3

    Ledger(home.ledger).close()
    database = sqlite3.connect(home.ledger)
    database.executescript("DROP TABLE judged; DROP TABLE feedback; PRAGMA user_version=1;")
    database.close()
    with Ledger(home.ledger) as ledger:
        assert judge(ledger, "b1", Outcome.REJECTED, finding())
