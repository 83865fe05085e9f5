from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bookbag import check_bead, is_bead, new_bead, slug
from orchestrator.errors import InvalidBeadError

GOOD = ["a", "0", "coder-general-0a1b2c3d", "bd-12.3", "a-", "a.lock.b", "a" * 63]
BAD = [
    "", ".", "..", "-a", ".a", "a..b", "a.", "a.lock", "A", "a b", "a/b", "a\n", "a\0", "ä", "a_b", "../a", "a" * 64, "a~1",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_a_bead_of_the_grammar_is_taken_as_it_is(text):
    assert check_bead(text) == text


@pytest.mark.parametrize("text", [*BAD, None, 7])
def test_anything_else_is_refused_with_the_grammar_as_next_step(text):
    with pytest.raises(InvalidBeadError, match="not a bead id") as caught:
        check_bead(text)
    assert "a-z" in caught.value.next_step


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("text", GOOD)
def test_git_takes_every_bead_as_a_ref(text):
    for ref in (f"refs/school/{text}", f"refs/heads/school/{text}"):
        assert subprocess.run(["git", "check-ref-format", ref], check=False).returncode == 0


def test_a_minted_bead_is_role_domain_and_eight_hex_digits():
    bead = new_bead("coder", "Web UI")
    stem, _, digits = bead.rpartition("-")
    assert stem == "coder-web-ui"
    assert len(digits) == 8
    assert set(digits) <= set("0123456789abcdef")
    assert new_bead("coder", "general") != new_bead("coder", "general")


@given(role=st.text(), domain=st.text())
def test_minting_gives_a_bead_or_says_that_it_cannot(role, domain):
    try:
        bead = new_bead(role, domain)
    except InvalidBeadError:
        return
    assert is_bead(bead)


@given(st.text())
def test_a_slug_is_a_bead_or_refused(text):
    try:
        bead = slug(text)
    except InvalidBeadError:
        assert not any(letter in "abcdefghijklmnopqrstuvwxyz0123456789" for letter in text[:1])
        return
    assert is_bead(bead)
    assert slug(bead) == bead


@pytest.mark.parametrize(
    ("text", "bead"),
    [
        ("BD-12/fix it", "bd-12-fix-it"),
        ("PROJ_7..x", "proj-7.x"),
        ("x.lock", "x"),
        ("--a--", "a"),
        ("x.lock.lock", "x"),
    ],
)
def test_a_trackers_id_is_slugged(text, bead):
    assert slug(text) == bead
