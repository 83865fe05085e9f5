"""Which reply is a person's word (R-46): one row a case, whatever is not clearly one is refused with its reason."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rails.mail.base import TEXT_LIMIT, Reply, signs
from orchestrator.rails.mail.judge import (
    NOTE_LIMIT,
    Accepted,
    Expectation,
    Refused,
    judge_reply,
    own_words,
    sole_address,
    token_digest,
)

TOKEN = "0123456789abcdef" * 2
OTHER = "f" * 32
SHA = "ab12" * 10
EXPECTED = Expectation(
    bead="coder-general-1a2b3c4d",
    head_sha=SHA,
    thread_id="t-1",
    token_sha256=token_digest(TOKEN),
    expires=1000.0,
    now=500.0,
    allow=frozenset({"ann@example.org"}),
)
REPLY = Reply("m-1", "t-1", "Ann <ann@example.org>", f"/approve {TOKEN} {SHA}")

QUOTED = f"""
On Mon, 30 Nov 2026 at 10:00, School <school@example.org> wrote:

> Answer this mail in plain text with one of these lines:
>     /approve {TOKEN} {SHA}
>     /reject {TOKEN} WHY
>     /fix {TOKEN} WHAT TO DO DIFFERENTLY
"""
OUTLOOK = f"""
From: School <school@example.org>
Sent: Monday
To: Ann

    /approve {TOKEN} {SHA}
    /reject {TOKEN} WHY
"""

ACCEPTED = {
    "approve": (f"/approve {TOKEN} {SHA}", "approve", ""),
    "approve, short sha": (f"/approve {TOKEN} {SHA[:12]}", "approve", ""),
    "approve with a word": (f"/approve {TOKEN} {SHA} thanks", "approve", "thanks"),
    "indented as it was copied": (f"Hello\n\n    /approve {TOKEN} {SHA}\n", "approve", ""),
    "capitals in the command": (f"/Approve {TOKEN} {SHA}", "approve", ""),
    "dos line ends": (f"/approve {TOKEN} {SHA}\r\nAnn\r\n", "approve", "Ann"),
    "a line broken by the mail program": (f"/approve {TOKEN}\n{SHA}", "approve", ""),
    "reject without a word": (f"/reject {TOKEN}", "reject", ""),
    "reject with a reason": (f"/reject {TOKEN} not what I meant", "reject", "not what I meant"),
    "fix": (f"/fix {TOKEN} use a set", "fix", "use a set"),
    "fix over several lines": (f"/fix {TOKEN} use a set\nand test it", "fix", "use a set\nand test it"),
    "fix with its note below": (f"/fix {TOKEN}\n\nuse a set", "fix", "use a set"),
    "above a quotation": (f"/fix {TOKEN} use a set\n{QUOTED}", "fix", "use a set"),
    "above a quotation without marks": (f"/fix {TOKEN} use a set\n{OUTLOOK}", "fix", "use a set"),
    "below a quotation": (f"> /approve {TOKEN} {SHA}\n> /reject {TOKEN} WHY\n\n/reject {TOKEN} no", "reject", "no"),
    "above a signature": (f"/fix {TOKEN} use a set\n-- \nAnn\n/reject {TOKEN}", "fix", "use a set"),
    "a head of quotation over two lines": (
        f"/reject {TOKEN} no\nOn Mon, 30 Nov 2026, School\n<school@example.org> wrote:\n/approve {TOKEN} {SHA}",
        "reject",
        "no",
    ),
    "a head of quotation in German": (
        f"/reject {TOKEN} nein\nAm Mo., 30. Nov. 2026 schrieb School <s@x.org>:\n/approve {TOKEN} {SHA}",
        "reject",
        "nein",
    ),
    "control characters in a note": (f"/fix {TOKEN} a\x1b[2Jb\u202ec", "fix", "a [2Jb c"),
}


@pytest.mark.parametrize(("text", "command", "note"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_persons_word_counts_r46(text, command, note):
    judged = judge_reply(dataclasses.replace(REPLY, text=text), EXPECTED)
    assert judged == Accepted(command, note, "ann@example.org")


REFUSED = {
    # whose word it is
    "a forged display name": ({"sender": "ann@example.org <eve@evil.org>"}, {}, "exactly one address"),
    "a forged display name in quotes": ({"sender": '"ann@example.org" <eve@evil.org>'}, {}, "exactly one address"),
    "somebody else": ({"sender": "eve@evil.org"}, {}, "eve@evil.org is not on the allow-list"),
    "a domain that only begins alike": ({"sender": "ann@example.org.evil.org"}, {}, "not on the allow-list"),
    "a domain that only ends alike": ({"sender": "ann@evil-example.org"}, {}, "not on the allow-list"),
    "a plus address": ({"sender": "ann+x@example.org"}, {}, "not on the allow-list"),
    "a homoglyph": ({"sender": "\u0430nn@example.org"}, {}, "not on the allow-list"),
    "two senders": ({"sender": "ann@example.org, eve@evil.org"}, {}, "exactly one address"),
    "a group of senders": ({"sender": "all: ann@example.org, eve@evil.org;"}, {}, "exactly one address"),
    "no sender": ({"sender": ""}, {}, "exactly one address"),
    "a line break in the sender": ({"sender": "ann@example.org\nBcc: x@y.org"}, {}, "exactly one address"),
    "an empty allow-list": ({}, {"allow": frozenset()}, "the allow-list is empty"),
    "a failed DMARC": ({"doubts": ("dmarc=fail",)}, {}, "doubts its sender: dmarc=fail"),
    "marked as spam": ({"doubts": ("spam",)}, {}, "doubts its sender"),
    "a vacation notice": ({"automatic": True}, {}, "a program sent it"),
    # where it stands
    "another thread": ({"thread_id": "t-2"}, {}, "in this thread"),
    "no thread": ({"thread_id": ""}, {"thread_id": ""}, "in this thread"),
    "read before": ({}, {"seen": True}, "read before"),
    # the token
    "no token": ({"text": f"/approve {SHA}"}, {}, "token is missing"),
    "the token of another notice": ({"text": f"/approve {OTHER} {SHA}"}, {}, "not this notice's"),
    "a part of the token": ({"text": f"/approve {TOKEN[:31]} {SHA}"}, {}, "token is missing"),
    "the token in capitals": ({"text": f"/approve {TOKEN.upper()} {SHA}"}, {}, "token is missing"),
    "the token's digest": ({"text": f"/approve {token_digest(TOKEN)[:32]} {SHA}"}, {}, "not this notice's"),
    "the token elsewhere only": ({"text": f"{TOKEN}\n/reject no"}, {}, "token is missing"),
    "the token in the quotation only": ({"text": f"/reject no\n{QUOTED}"}, {}, "token is missing"),
    "the token a second time": ({}, {"used": True}, "waits for no answer any more"),
    "the token too late": ({}, {"now": 1000.0}, "run out"),
    # the command
    "no text": ({"text": " \n"}, {}, "it is empty"),
    "HTML only": ({"text": "", "html": True}, {}, "only HTML"),
    "no command": ({"text": "looks good to me"}, {}, "no command of its own"),
    "the quotation alone": ({"text": QUOTED}, {}, "no command of its own"),
    "the quotation alone, without marks": ({"text": OUTLOOK}, {}, "no command of its own"),
    "the signature alone": ({"text": f"Hi\n-- \n/approve {TOKEN} {SHA}"}, {}, "no command of its own"),
    "a command in a sentence": ({"text": f"I would /approve {TOKEN} {SHA}"}, {}, "no command of its own"),
    "two commands": ({"text": f"/approve {TOKEN} {SHA}\n/reject {TOKEN}"}, {}, "more than one command"),
    "the same command twice": ({"text": f"/reject {TOKEN}\n/reject {TOKEN}"}, {}, "more than one command"),
    "a quotation in a form not known": (
        {"text": f"/reject {TOKEN} no\nSchool skrev:\n/approve {TOKEN} {SHA}"},
        {},
        "more than one command",
    ),
    "a word that is no command": ({"text": f"/merge {TOKEN} {SHA}"}, {}, "/merge is no command"),
    "a command that only begins alike": ({"text": f"/approved {TOKEN} {SHA}"}, {}, "/approved is no command"),
    "a command with a hidden character": ({"text": f"/appr\u200bove {TOKEN} {SHA}"}, {}, "is no command"),
    "a fix without a note": ({"text": f"/fix {TOKEN}"}, {}, "needs a note"),
    "a fix with its note in the quotation": ({"text": f"/fix {TOKEN}\n> use a set"}, {}, "needs a note"),
    "too long": ({"text": f"/reject {TOKEN} " + "x" * TEXT_LIMIT}, {}, "too long"),
    # the commit
    "approve without a commit": ({"text": f"/approve {TOKEN}"}, {}, "does not name the commit"),
    "approve of another commit": ({"text": f"/approve {TOKEN} {'c' * 40}"}, {}, "does not name the commit"),
    "approve of too short a commit": ({"text": f"/approve {TOKEN} {SHA[:11]}"}, {}, "does not name the commit"),
    "approve of a branch": ({"text": f"/approve {TOKEN} main"}, {}, "does not name the commit"),
    "approve of nothing": ({"text": f"/approve {TOKEN} {SHA}"}, {"head_sha": ""}, "does not name the commit"),
    "approve where the rule does not hold": ({}, {"no_approval": "CTO says FAIL"}, "can't be approved: CTO says FAIL"),
}


@pytest.mark.parametrize(("reply", "expected", "reason"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_with_its_reason_r46(reply, expected, reason):
    judged = judge_reply(dataclasses.replace(REPLY, **reply), dataclasses.replace(EXPECTED, **expected))
    assert isinstance(judged, Refused)
    assert reason in judged.reason


def test_without_a_notice_nothing_counts():
    assert isinstance(judge_reply(REPLY, None), Refused)


def test_a_reject_or_fix_counts_although_the_rule_does_not_hold():
    expected = dataclasses.replace(EXPECTED, no_approval="CTO says FAIL")
    assert isinstance(judge_reply(dataclasses.replace(REPLY, text=f"/fix {TOKEN} x"), expected), Accepted)


@given(st.text(max_size=300), st.text(max_size=60))
def test_no_text_without_the_token_ever_counts(text, sender):
    assert isinstance(judge_reply(dataclasses.replace(REPLY, text=text), EXPECTED), Refused)
    judged = judge_reply(dataclasses.replace(REPLY, sender=sender), EXPECTED)
    assert isinstance(judged, Refused)


@given(st.text(alphabet=">|\n -/abOnwrote:\r", max_size=200))
def test_own_words_are_lines_of_the_text_and_never_quoted_ones(text):
    lines = own_words(text).split("\n")
    assert set(lines) <= {*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""}
    assert not [line for line in lines if line.strip().startswith(">")]


def test_a_note_is_bounded():
    judged = judge_reply(dataclasses.replace(REPLY, text=f"/fix {TOKEN} " + "x" * 50_000), EXPECTED)
    assert len(judged.note) == NOTE_LIMIT


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("ann@example.org", "ann@example.org"),
        ("Ann B <Ann@Example.ORG>", "ann@example.org"),
        ("=?utf-8?q?Ann?= <ann@example.org>", "ann@example.org"),
        ("Ann <ann@example.org> <eve@evil.org>", None),
        ("ann@example.org (eve@evil.org)", None),
        ("<>", None),
        ("ann", None),
        ("ann@example.org\x00", None),
        ("eve@evil.org <ann@example.org", None),
    ],
)
def test_a_from_header_names_one_address_or_none(header, address):
    assert sole_address(header) == address


@pytest.mark.parametrize(
    ("headers", "automatic", "doubts"),
    [
        ({}, False, ()),
        ({"Auto-Submitted": "no"}, False, ()),
        ({"auto-submitted": "auto-replied"}, True, ()),
        ({"Precedence": "Bulk"}, True, ()),
        ({"Return-Path": "<>"}, True, ()),
        ({"List-Id": "x"}, True, ()),
        ({"Authentication-Results": "mx; spf=pass; dkim=pass; dmarc=pass"}, False, ()),
        ({"Authentication-Results": "mx; dmarc=fail (p=none)"}, False, ("dmarc=fail",)),
        ({"Authentication-Results": "mx; spf=fail; dkim=none"}, False, ("spf=fail",)),
        ({"Authentication-Results": "mx; spf=fail; dmarc=pass"}, False, ()),
        ({"Authentication-Results": "mx; dmarc=pass; x; dmarc=fail"}, False, ("dmarc=fail",)),
    ],
)
def test_what_headers_say_against_a_sender(headers, automatic, doubts):
    assert signs(headers) == (automatic, doubts)
