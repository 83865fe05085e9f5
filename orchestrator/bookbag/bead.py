"""The grammar of bead ids (R-6).

A bead becomes a file name, a git ref (``refs/school/<bead>``), a label and a folder, so one grammar has to fit
them all: ``[a-z0-9][a-z0-9.-]{0,62}`` without ``..``. Two more endings are refused because git refuses them in a
ref: ``.`` and ``.lock``. Written without ``re``: a leaf's entry point imports this file before its agent starts.
"""

from __future__ import annotations

import os

from orchestrator.errors import InvalidBeadError

MAX_BEAD = 63
"""Longest bead id in characters."""

_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_REST = _FIRST | frozenset(".-")


def is_bead(text: object) -> bool:
    """Whether ``text`` is a bead id (R-6)."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= MAX_BEAD
        and text[0] in _FIRST
        and _REST.issuperset(text)
        and ".." not in text
        and not text.endswith((".", ".lock"))
    )


def check_bead(text: str) -> str:
    """Return ``text`` when it is a bead id.

    Raises:
        InvalidBeadError: It is not (R-6).
    """
    if not is_bead(text):
        raise InvalidBeadError(
            f"not a bead id: {str(text)[:80]!r}",
            next_step=f"use 1 to {MAX_BEAD} of a-z, 0-9, '.' and '-', starting with a letter or digit, "
            "without '..', and not ending in '.' or '.lock'",
        )
    return text


def slug(text: str) -> str:
    """Return the bead id nearest to a task tracker's id: lower case, anything foreign becomes ``-`` (R-6).

    Two different ids can give the same slug; a caller that mints files from it looks whether the bead is taken.

    Raises:
        InvalidBeadError: Nothing of the text can be kept.
    """
    kept = "".join(letter if letter in _REST else "-" for letter in text.strip().lower())
    while "--" in kept:
        kept = kept.replace("--", "-")
    while ".." in kept:
        kept = kept.replace("..", ".")
    kept = kept.lstrip(".-")[:MAX_BEAD].rstrip(".-")
    while kept.endswith(".lock"):
        kept = kept.removesuffix(".lock").rstrip(".-")
    return check_bead(kept)


def new_bead(role: str, domain: str) -> str:
    """Mint ``{role}-{domain}-{8 random hex}`` (R-6); role and domain are slugged, and cut where they are too long.

    Raises:
        InvalidBeadError: Role or domain has no usable character.
    """
    room = MAX_BEAD - 9  # a dash and eight digits stay free for what makes the id unique
    stem = f"{slug(role)}-{slug(domain)}"[:room].rstrip(".-")
    return check_bead(f"{stem}-{os.urandom(4).hex()}")
