"""Chooses what of the evidence fits into one model call. What does not fit is named, never dropped in silence."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from orchestrator.review.evidence import DIFF, LOG
from orchestrator.review.visible import visible_line

if TYPE_CHECKING:
    from orchestrator.review.evidence import Evidence, Part

DEFAULT_BUDGET: Final = 240_000
"""Characters of evidence in one call; roughly 60,000 tokens of code."""

TEXT_LIMIT: Final = 24_000
"""Characters of each text beside the parts: task, instructions, the student's report."""

_LOG_SHARE: Final = 10  # a tenth is kept for the verification log, whatever the rest takes
_WORTH_CUTTING: Final = 400  # characters; a shorter piece of a file tells nothing
_FILE_IN_DIFF: Final = re.compile(r"^(?=diff --git )", re.MULTILINE)

# written by machines from another file that is reviewed; too long for any budget when they first appear
_LOCK_FILES: Final = frozenset(
    {
        "Cargo.lock",
        "Pipfile.lock",
        "composer.lock",
        "go.sum",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "pnpm-lock.yaml",
        "poetry.lock",
        "uv.lock",
        "yarn.lock",
    }
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What goes into the call.

    ``cut`` names what is missing, for the prompt and the review. ``unseen`` are changed files of which a part of
    the *change itself* is missing: nobody has judged those lines. ``unseen_locks`` are the same for lock files.
    """

    parts: tuple[Part, ...]
    cut: tuple[str, ...]
    unseen: tuple[str, ...] = ()
    unseen_locks: tuple[str, ...] = ()


def clip(text: str, limit: int) -> tuple[str, int]:
    """Return at most ``limit`` characters from the start, and how many are missing."""
    return (text, 0) if len(text) <= limit else (text[:limit], len(text) - limit)


def select(evidence: Evidence, budget: int = DEFAULT_BUDGET) -> Selection:
    """Fill ``budget`` characters in the order diff, changed files, neighbours, verification log."""
    cut = [f"left out when the evidence was made: {visible_line(entry)}" for entry in evidence.cut]
    by_name = {part.name: part for part in evidence.parts}
    log = by_name.get(LOG)
    reserve = min(len(log.text), budget // _LOG_SHARE) if log else 0
    left = budget - reserve
    chosen: list[Part] = []
    unseen: list[str] = []
    locks: list[str] = []
    diff = by_name.get(DIFF)
    if diff is not None:
        text, missing = _fit_diff(diff.text, left)
        chosen.append(replace(diff, text=text))
        left -= len(text)
        for path, shown, total in missing:
            cut.append(f"{DIFF}: of the change to {path}, the first {shown} of {total} characters are shown")
            (locks if path.rpartition("/")[2] in _LOCK_FILES else unseen).append(path)
        if diff.truncated:
            cut.append(f"{DIFF}: was cut when the evidence was made")
            unseen.append("(the end of the diff)")
    for prefix in ("files/", "neighbours/"):
        for part in (part for part in evidence.parts if part.name.startswith(prefix)):
            if part.truncated:
                cut.append(f"{_label(part)}: was cut when the evidence was made")
            text, missing_count = clip(part.text, max(0, left))
            if missing_count and len(text) < _WORTH_CUTTING:
                cut.append(f"{_label(part)}: left out")
                continue
            if missing_count:
                cut.append(f"{_label(part)}: the first {len(text)} of {len(part.text)} characters are shown")
            chosen.append(replace(part, text=text))
            left -= len(text)
    if log is not None:
        chosen.append(_fit_log(log, left + reserve, cut))
    return Selection(tuple(chosen), tuple(cut), tuple(unseen), tuple(locks))


def _label(part: Part) -> str:
    return f"{part.name} ({visible_line(part.path)})"


def _fit_log(log: Part, room: int, cut: list[str]) -> Part:
    """Keep the end of the log: that is where a check says how it ended."""
    if log.truncated:
        cut.append(f"{LOG}: was cut when the evidence was made")
    if len(log.text) <= room:
        return log
    cut.append(f"{LOG}: the last {room} of {len(log.text)} characters are shown")
    return replace(log, text=log.text[len(log.text) - room :] if room > 0 else "")


def _fit_diff(text: str, room: int) -> tuple[str, list[tuple[str, int, int]]]:
    """Shorten a diff file by file, the longest first, so that every changed file is seen at least in part.

    Returns the diff and, for each file that was shortened, (path, characters shown, characters in all).
    """
    if len(text) <= room:
        return text, []
    # a line of a hunk starts with a blank, +, - or \, and base85 has no blanks: content can't forge a header
    pieces = [piece for piece in _FILE_IN_DIFF.split(text) if piece]
    limit = _level([len(piece) for piece in pieces], max(0, room))
    shown: list[str] = []
    missing: list[tuple[str, int, int]] = []
    for piece in pieces:
        if len(piece) > limit:
            header = piece.split("\n", 1)[0].removeprefix("diff --git ")
            missing.append((visible_line(_new_path(header)), limit, len(piece)))
            piece = piece[:limit] + "\n"  # noqa: PLW2901 - the next file's header starts on a line of its own
        shown.append(piece)
    return "".join(shown), missing


def _level(lengths: list[int], room: int) -> int:
    """Return the largest limit for which the sum of ``min(length, limit)`` stays within ``room``."""
    remaining = len(lengths)
    for length in sorted(lengths):
        if length * remaining > room:
            return room // remaining
        room -= length
        remaining -= 1
    return max(lengths, default=0)


def _new_path(header: str) -> str:
    """Return the path after the change from ``a/x b/x``; git quotes unusual paths, which is kept as it is."""
    middle = len(header) // 2
    if header.startswith("a/") and header[middle : middle + 3] == " b/":  # the same path twice, blanks allowed
        return header[middle + 3 :]
    return header.rpartition(" b/")[2] or header
