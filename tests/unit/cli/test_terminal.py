"""A terminal is an interpreter: nothing a student wrote reaches it unescaped."""

import io
import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.main import show_error
from orchestrator.cli.terminal import Terminal, one_line, safe
from orchestrator.errors import RepoSetupError


@given(st.text())
def test_safe_text_has_no_control_or_format_character(text):
    for character in safe(text):
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_escape_sequences_become_visible():
    assert safe("\x1b]0;title\x07") == "\\x1b]0;title\\x07"
    assert safe("a\u202eb") == "a\\u202eb"


def test_lines_stay_when_asked():
    assert safe("a\n\tb\r", lines=True) == "a\n\tb\\x0d"


def test_one_line_is_one_line_and_short():
    assert one_line("a\n b\r\n  c") == "a b c"
    assert one_line("x" * 200, limit=10) == "x" * 10 + "…"


def test_no_colour_outside_a_terminal():
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.line(terminal.paint("x", "red"))
    assert stream.getvalue() == "x\n"


def test_an_errors_words_are_escaped_too(capsys):
    """The end of a build's log is what a repository's own setup printed; git's words hold a student's file names."""
    error = RepoSetupError(
        "setup\x1b[2J failed", log_tail="line\n\x1b]0;owned\x07\u202e\x9b31m", next_step="see \x1b[0m"
    )
    show_error(error, as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["log_tail"] == error.log_tail
    for text in (shown.out, shown.err):
        assert not [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf"}]
    assert "line\n\\x1b]0;owned" in shown.err
