"""R-45, R-46: notices go out once, what counts becomes a word by the same way as from the command line."""

import importlib.util
import re
from pathlib import Path

import pytest

from orchestrator.errors import MailError
from orchestrator.home import home_at
from orchestrator.principal import mailing
from orchestrator.principal.word import Words
from orchestrator.rails.mail.base import Incoming, Reply, Sent
from orchestrator.settings import load_settings

SPEC = importlib.util.spec_from_file_location("accepted_for_mail", Path(__file__).with_name("accepted.py"))
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
BEAD = MODULE.BEAD


class Post:
    """A mail service in memory."""

    name = "memory"

    def __init__(self):
        self.out, self.inbox, self.answers, self.down = [], [], [], False

    def send(self, mail):
        if self.down:
            raise MailError("down")
        self.out.append(mail)
        return Sent(f"m{len(self.out)}", f"t{len(self.out)}")

    def incoming(self, threads, *, since):
        if self.down:
            raise MailError("down")
        return Incoming(tuple(reply for reply in self.inbox if reply.thread_id in threads))

    def answer(self, reply, text):
        self.answers.append(text)

    def close(self): ...

    def write(self, text, sender="boss@example.org", thread="t1"):
        self.inbox.append(Reply(f"in{len(self.inbox)}", thread, sender, text))

    def command(self, name):
        return next(line.strip() for line in self.out[-1].text.splitlines() if line.strip().startswith(f"/{name}"))


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home").ensure()


@pytest.fixture
def bead(home, tmp_path):
    made = MODULE.Accepted(home, tmp_path / "repo")
    yield made
    made.ledger.close()


@pytest.fixture
def post(monkeypatch):
    made = Post()
    monkeypatch.setattr(mailing, "open_mailer", lambda *_: made)
    return made


@pytest.fixture
def go(home, bead, post):
    in_force = load_settings(mail="smtp", mail_to="boss@example.org", mail_allow="boss@example.org", fix_rounds=2)
    return lambda: mailing.mail_round(home, bead.ledger, in_force)


def test_without_mail_there_is_no_round(home, bead):
    assert mailing.mail_round(home, bead.ledger, load_settings()) is None


def test_a_verdict_is_told_once_with_the_three_commands(go, post, bead):
    assert go().sent == [BEAD]
    assert go().sent == []
    assert len(post.out) == 1
    assert post.command("approve").endswith(bead.head)
    assert re.fullmatch(r"/fix [0-9a-f]{32} .*", post.command("fix"))


def test_an_approval_by_mail_is_the_same_word(go, post, bead):
    go()
    post.write(post.command("approve"))
    done = go()
    assert [(h.command, h.bead) for h in done.handled] == [("approve", BEAD)]
    assert bead.row()["human"] == "approved"
    assert bead.row()["data"]["word"]["via"] == "mail from boss@example.org"
    assert bead.head in post.answers[0]
    assert go().handled == []


def test_a_fix_by_mail_waits_for_the_tick(go, post, bead, home):
    go()
    token = post.command("fix").split()[1]
    post.write(f"/fix {token} Keep the docstring.")
    assert "a new student gets it" in go().handled[0].result
    words = Words(home, bead.ledger, fix_rounds=2)
    assert [row["bead"] for row in words.pending_fixes()] == [BEAD]
    assert bead.row()["data"]["word"]["note"] == "Keep the docstring."


def test_a_stranger_is_ignored_and_a_late_answer_too(go, post, bead, home):
    go()
    post.write(post.command("approve"), sender="stranger@example.org")
    assert go().handled[0].command is None
    assert bead.row()["human"] == "awaiting"
    Words(home, bead.ledger, fix_rounds=2).decline(BEAD, "decided here", via="command line")
    post.write(post.command("approve"))
    assert all(handled.command is None for handled in go().handled)
    assert bead.row()["human"] == "declined"


def test_what_moved_meanwhile_is_not_approved_by_mail(go, post, bead):
    go()
    MODULE.git(bead.repo, "update-ref", f"refs/school/{BEAD}", bead.base)
    post.write(post.command("approve"))
    handled = go().handled
    assert handled[0].command is None
    assert bead.row()["human"] == "awaiting"


def test_a_rejected_bead_is_told_of_without_an_approval(go, post, bead):
    report = bead.row()["data"]["report"] | {"outcome": "rejected", "accepted": False}
    bead.ledger.update_bead(BEAD, outcome="rejected", human=None, data={"report": report})
    assert go().sent == [BEAD]
    assert "can't be approved" in post.out[0].text
    post.write(post.command("fix"))
    assert go().handled[0].command == "fix"


def test_mail_that_is_down_is_a_problem_and_the_next_round_tells(go, post, bead):
    post.down = True
    done = go()
    assert done.problems
    assert not done.sent
    post.down = False
    assert go().sent == [BEAD]
