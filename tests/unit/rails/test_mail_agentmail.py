"""A whole round by AgentMail: its SDK against a local server (R-45, R-46)."""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.errors import BlockedError, ConfigError, MailError
from orchestrator.rails.mail import Notices, read_answers, send_notice
from orchestrator.rails.mail import agentmail as adapter
from orchestrator.rails.mail.agentmail import AgentMailer
from orchestrator.rails.mail.base import Outgoing

_spec = importlib.util.spec_from_file_location("agentmail_server", Path(__file__).parent / "agentmail_server.py")
standin = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(standin)

ANN = "ann@example.org"
SHA = "ab12" * 10


@pytest.fixture
def server():
    made = standin.AgentMailServer()
    yield made
    made.close()


@pytest.fixture
def mailer(server):
    made = AgentMailer(standin.INBOX, standin.KEY, url=server.url, timeout=10)
    yield made
    made.close()


class Person:
    """Sends notices, answers them and reads what the school made of it."""

    def __init__(self, mailer, notices, server, report):
        self.mailer, self.notices, self.server, self.report = mailer, notices, server, report
        self.acted: list[tuple[str, str, str]] = []
        self.act = lambda answer: "done"
        self.no_approval = ""

    def notice(self, bead="coder-general-1a2b3c4d", number=0, **changes):
        """Send a notice; return (thread, token)."""
        days = changes.pop("days", 7)
        report = self.report(bead, **changes)
        notice = send_notice(self.mailer, self.notices, report, key=b"k" * 32, to=ANN, number=number, days=days)
        mail = next(m for m in reversed(self.server.messages) if bead in m.get("subject", "") and m["text"])
        thread = self.notices.waiting(now=0.0)
        thread_id = next(n.thread_id for n in thread if (n.bead, n.round) == (bead, number))
        assert notice.head_sha == SHA
        return thread_id, re.search(r"/reject ([0-9a-f]{32})", mail["text"])[1]

    def answer(self, text, thread, sender=f"Ann <{ANN}>", **fields):
        return self.server.receive(sender, text, thread, **fields)

    def read(self, allow=frozenset({ANN})):
        def act(answer):
            assert answer.head_sha == SHA  # what is approved is the commit that the notice was about
            self.acted.append((answer.bead, answer.command, answer.note))
            return self.act(answer)

        handled, problems = read_answers(
            self.mailer, self.notices, allow=allow, no_approval=lambda bead: self.no_approval, act=act
        )
        return [(h.bead, h.command, h.result) for h in handled], problems


@pytest.fixture
def person(mailer, notices, server, report):
    return Person(mailer, notices, server, report)


BEAD = "coder-general-1a2b3c4d"


def test_a_notice_shows_verdicts_findings_change_commit_and_three_commands_r45(person, server):
    _, token = person.notice()
    mail = server.messages[0]
    assert (mail["to"], mail["subject"]) == ([ANN], f"[school] accepted: Do it. ({BEAD})")
    for part in ("PASS, score 92", "2 files, +10 -3", f"commit        {SHA}", "a.py:1: A short name.", "MEDIUM b.py"):
        assert part in mail["text"]
    commands = [line.split()[0] for line in mail["text"].splitlines() if line.strip().startswith("/")]
    assert commands == ["/approve", "/reject", "/fix"]  # and none that a finding smuggled in
    assert f"/approve {token} {SHA}" in mail["text"]


def test_a_rejected_bead_offers_no_approval(mailer, notices, server, report):
    send_notice(mailer, notices, report(outcome="rejected"), key=b"k", to=ANN, no_approval="CTO says FAIL")
    text = server.messages[0]["text"]
    assert "can't be approved: CTO says FAIL" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip().startswith("/")] == ["/reject", "/fix"]


def test_an_answer_is_carried_out_once_and_its_result_is_mailed_back(person, server):
    thread, token = person.notice()
    person.answer(f"/approve {token} {SHA}", thread)
    assert person.read() == ([(BEAD, "approve", "done")], ())
    assert person.acted == [(BEAD, "approve", "")]
    assert (server.messages[-1]["to"], server.messages[-1]["text"]) == ([ANN], f"{BEAD}: done\n")
    assert server.messages[-1]["thread_id"] == thread
    assert person.read() == ([], ())
    assert len(person.acted) == 1


def test_an_answer_on_any_page_of_a_long_thread_is_found_in_order(person):
    thread, token = person.notice()
    for number in range(7):
        person.answer(f"hello {number}", thread)
    person.answer(f"/fix {token} use a set", thread)
    for number in range(5):
        person.answer(f"/reject {token} too late {number}", thread)
    handled, _ = person.read()
    assert [command for _, command, _ in handled] == [None] * 7 + ["fix"] + [None] * 5
    assert handled[-1][2] == "its notice waits for no answer any more"
    assert person.acted == [(BEAD, "fix", "use a set")]


def test_a_replay_in_a_new_mail_is_refused(person):
    thread, token = person.notice()
    person.answer(f"/reject {token}", thread)
    person.read()
    person.answer(f"/reject {token}", thread)
    assert person.read()[0] == [(BEAD, None, "its notice waits for no answer any more")]
    assert len(person.acted) == 1


def test_each_refused_mail_is_recorded_with_its_reason_and_has_no_effect(person, notices):
    thread, token = person.notice()
    other_thread, other = person.notice("coder-general-22222222")
    good = f"/approve {token} {SHA}"
    person.answer(good, thread, sender="eve@evil.org")
    person.answer(good, thread, sender=f"{ANN} <eve@evil.org>")
    person.answer(good, other_thread)
    person.answer(good, "t-unknown")
    person.answer(good, thread, labels=["received", "unauthenticated"])
    person.answer(good, thread, headers={"Auto-Submitted": "auto-replied"})
    person.answer(good, thread, headers={"Authentication-Results": "mx; dmarc=fail"})
    person.answer(None, thread, html=f"<p>{good}</p>", extracted_text=good)
    person.answer(f"{good}\n/reject {token}", thread)
    person.answer(f"/approve {other} {SHA}", thread)
    person.answer(f"/approve {token} {'c' * 40}", thread)
    handled, problems = person.read()
    assert problems == ()
    assert person.acted == []
    assert {command for _, command, _ in handled} == {None}
    reasons = sorted(result for _, _, result in handled)
    assert len(reasons) == 11
    for part in (
        "eve@evil.org is not on the allow-list",
        "exactly one address",
        "not this notice's",
        "no notice waits",
        "unauthenticated",
        "a program sent it",
        "dmarc=fail",
        "only HTML",
        "more than one command",
        "does not name the commit",
    ):
        assert any(part in reason for reason in reasons), part
    assert sorted(str(row["note"]) for row in notices.messages()) == reasons
    assert {row["result"] for row in notices.messages()} == {"ignored"}
    person.answer(good, thread)
    assert person.read()[0] == [(BEAD, "approve", "done")]  # none of them used the token up


def test_a_mail_that_was_refused_stays_refused_when_its_sender_is_allowed_later(person):
    thread, token = person.notice()
    person.answer(f"/reject {token}", thread)
    assert person.read(allow=frozenset())[0][0][2] == "nobody is allowed to answer: the allow-list is empty"
    assert person.read() == ([], ())


def test_what_the_extraction_left_out_is_not_read(person):
    thread, token = person.notice()
    text = f"/reject {token} no\n\nOn Monday School wrote:\n> /approve {token} {SHA}"
    person.answer(text, thread, extracted_text=f"/reject {token} no")
    assert person.read()[0] == [(BEAD, "reject", "done")]


def test_a_token_that_has_run_out_counts_no_more(person, monkeypatch):
    thread, token = person.notice(days=1)
    person.answer(f"/reject {token}", thread)
    from orchestrator.rails.mail import rounds

    later = rounds.time.time() + 2 * rounds.DAY
    monkeypatch.setattr(rounds.time, "time", lambda: later)
    handled, _ = person.read()
    assert person.acted == []
    assert handled == []  # a notice that has run out is not asked for any more
    person.answer(f"/reject {token}", thread, timestamp="2999-01-01T00:00:00+00:00")
    assert person.read()[0] == [(BEAD, None, "the token has run out")]


def test_an_approval_is_refused_when_the_rule_does_not_hold_now(person):
    thread, token = person.notice()
    person.no_approval = "the branch has moved"
    person.answer(f"/approve {token} {SHA}", thread)
    assert person.read()[0] == [(BEAD, None, "this commit can't be approved: the branch has moved")]


def test_a_new_round_makes_the_older_notice_void(person):
    thread, token = person.notice()
    newer_thread, newer = person.notice(number=1)
    assert token != newer
    person.answer(f"/reject {token}", thread)
    person.answer(f"/reject {token}", newer_thread)
    handled, _ = person.read()
    assert {command for _, command, _ in handled} == {None}
    person.answer(f"/reject {newer}", newer_thread)
    assert person.read()[0] == [(BEAD, "reject", "done")]


def test_a_decision_made_elsewhere_makes_the_notice_void(person, notices):
    thread, token = person.notice()
    notices.void(BEAD)
    person.answer(f"/reject {token}", thread)
    assert person.read()[0] == [(BEAD, None, "its notice waits for no answer any more")]
    assert person.acted == []


def test_a_failed_action_is_what_came_of_the_answer_and_the_token_stays_used(person, server):
    thread, token = person.notice()

    def act(answer):
        raise BlockedError("No fix is left.", next_step="Submit it anew.")

    person.act = act
    person.answer(f"/fix {token} x", thread)
    assert person.read()[0] == [(BEAD, "fix", "fix failed: No fix is left. Submit it anew.")]
    assert "No fix is left" in server.messages[-1]["text"]
    assert person.read() == ([], ())


def test_an_answer_that_was_taken_before_a_crash_is_carried_out_by_the_next_round(person):
    thread, token = person.notice()

    def crash(answer):
        raise KeyboardInterrupt

    person.act = crash
    person.answer(f"/reject {token}", thread)
    with pytest.raises(KeyboardInterrupt):
        person.read()
    person.act = lambda answer: "done"
    assert person.read()[0] == [(BEAD, "reject", "done")]
    assert person.read() == ([], ())


def test_two_readers_at_once_carry_an_answer_out_once(person, ledger, mailer, report, server):
    thread, token = person.notice()
    person.answer(f"/reject {token}", thread)
    from orchestrator.principal.ledger import Ledger

    other_ledger = Ledger(ledger._path)
    other = Person(mailer, Notices(other_ledger), server, report)
    other.acted = person.acted
    threads = [threading.Thread(target=who.read) for who in (person, other)]
    for running in threads:
        running.start()
    for running in threads:
        running.join(60)
    other_ledger.close()
    assert {(bead, command) for bead, command, _ in person.acted} == {(BEAD, "reject")}
    assert len([m for m in person.notices.messages() if m["command"]]) == 1


def test_the_same_notice_after_a_crash_is_not_sent_twice(person, server, notices, mailer, report, ledger):
    class Dies:
        name = "dies"

        def send(self, mail):
            mailer.send(mail)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send_notice(Dies(), notices, report(), key=b"k" * 32, to=ANN)
    thread, token = person.notice()
    assert len(server.messages) == 1
    person.answer(f"/reject {token}", thread)
    assert person.read()[0] == [(BEAD, "reject", "done")]


def test_the_token_is_nowhere_in_the_ledger(person, ledger):
    _, token = person.notice()
    with ledger.transaction() as db:
        dump = str([tuple(row) for row in db.execute("SELECT * FROM mail_notices")])
    assert token not in dump


# -- the service fails ---------------------------------------------------------------------------------------------


def test_a_rate_limit_is_waited_out_by_the_sdk(person, server):
    thread, token = person.notice()
    person.answer(f"/reject {token}", thread)
    server.fail = [(429, {"Retry-After": "1"}), (503, {"Retry-After": "1"})]
    assert person.read()[0] == [(BEAD, "reject", "done")]


def test_a_rate_limit_that_lasts_is_an_error_and_nothing_is_lost(server, person, mailer):
    thread, token = person.notice()
    person.answer(f"/reject {token}", thread)
    mailer._options["max_retries"] = 0
    server.fail = [(429, {})]
    with pytest.raises(MailError, match="429"):
        person.read()
    assert person.read()[0] == [(BEAD, "reject", "done")]


def test_an_outage_at_the_send_leaves_the_notice_to_be_sent_again(server, person, mailer, notices, report):
    mailer._options["max_retries"] = 0
    server.fail = [(500, {})]
    with pytest.raises(MailError, match="500"):
        send_notice(mailer, notices, report(), key=b"k" * 32, to=ANN)
    assert notices.waiting(now=0.0) == []
    person.notice()
    assert len(server.messages) == 1


def test_nobody_there_is_a_mail_error():
    mailer = AgentMailer(standin.INBOX, standin.KEY, url="http://127.0.0.1:9", timeout=5, retries=0)
    with pytest.raises(MailError, match="ConnectError"):
        mailer.send(Outgoing(ANN, "s", "t", "k"))
    mailer.close()


def test_a_wrong_key_is_said(server):
    mailer = AgentMailer(standin.INBOX, "wrong", url=server.url, retries=0)
    with pytest.raises(MailError, match="refused the key"):
        mailer.send(Outgoing(ANN, "s", "t", "k"))
    mailer.close()


def test_one_thread_that_is_gone_does_not_hide_the_others(person, server):
    gone, _ = person.notice()
    thread, token = person.notice("coder-general-22222222")
    server.broken_threads.add(gone)
    person.answer(f"/reject {token}", thread)
    handled, problems = person.read()
    assert handled == [("coder-general-22222222", "reject", "done")]
    assert len(problems) == 1
    assert gone in problems[0]


def test_pages_that_never_end_are_a_problem_and_no_endless_loop(person, server, monkeypatch):
    monkeypatch.setattr(adapter, "PAGES", 3)
    person.notice()
    server.loop = True
    with pytest.raises(MailError, match="more than 3 pages"):
        person.read()


@pytest.mark.parametrize("field", ["from", "message_id", "thread_id"])
def test_an_answer_that_lacks_a_field_counts_for_nobody(person, server, field):
    thread, token = person.notice()
    person.answer(f"/reject {token}", thread)
    server.strip = {field}
    with pytest.raises(MailError, match="another form than expected"):
        person.read()
    assert person.acted == []


def test_without_the_sdk_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "agentmail", None)
    with pytest.raises(ConfigError, match="SDK is not installed") as caught:
        AgentMailer("i", "k")
    assert "agent-school[mail]" in caught.value.next_step
