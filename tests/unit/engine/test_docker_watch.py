"""How bytes become lines; the rest of the watch is in tests/conformance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.docker_watch import _Splitter


def _lines(chunks: list[bytes], limit: int) -> list[bytes]:
    splitter = _Splitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return found + ([rest] if (rest := splitter.rest()) else [])


@given(st.lists(st.text(alphabet="ab\n").map(str.encode)), st.integers(1, 5))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    assert _lines(chunks, limit) == _lines([whole], limit)


def test_empty_lines_are_lines_and_a_final_newline_begins_none() -> None:
    assert _lines([b"a\n\nb\n"], 9) == [b"a", b"", b"b"]


def test_only_the_beginning_of_a_long_line_is_kept() -> None:
    assert _lines([b"aaa", b"aaa\n", b"b\n"], 4) == [b"aaaa", b"b"]
