"""A student's submission: what its outbox may hand to the principal, and the only place that decides it.

The student wrote the file, so every byte of it is a claim. Four fields are a student's to fill
(``record.FIELDS``); everything else is the principal's or a teacher's and is taken from them, never from here.
Claims to a judgment are refused outright. Light: a leaf's entry point writes through this file.
"""

from __future__ import annotations

import json

from orchestrator.bookbag import files
from orchestrator.bookbag.bead import check_bead
from orchestrator.bookbag.record import FIELDS, NOT_REVIEWED, SCHEMA_VERSION, TEACHERS, WRITTEN, new_bookbag
from orchestrator.bookbag.store import decode, encode
from orchestrator.errors import BookbagCorruptError, BookbagError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MAX_BYTES = 1024 * 1024
"""Longest submission in bytes."""

MAX_ITEMS = 200
"""Longest list (``ac_met``, ``blockers``)."""

STUDENT_FIELDS = tuple(name for name, field in FIELDS.items() if field.owner == "student")


def make_submission(
    bead: str, *, output: str = "", summary: str = "", ac_met: Sequence[str] = (), blockers: Sequence[str] = ()
) -> bytes:
    """Return a submission that ``check_submission`` lets pass; an output that is too long is cut, and says so.

    Raises:
        BookbagError: Too long even without its output, or too many list items.
        InvalidBeadError: ``bead`` is outside the grammar (R-6).
    """
    fields = {"output": output, "summary": summary, "ac_met": list(ac_met), "blockers": list(blockers)}
    for name in ("ac_met", "blockers"):
        if len(fields[name]) > MAX_ITEMS:
            raise BookbagError(f"{name} has {len(fields[name])} items; the limit is {MAX_ITEMS}")
    bare = len(encode(new_bookbag(bead, {**fields, "output": ""})))
    room = MAX_BYTES - bare - 100  # for the line that says what was cut
    if room <= 0:
        raise BookbagError(f"a submission of {bare} bytes without its output; the limit is {MAX_BYTES}")
    if len(json.dumps(output)) > room:
        fields["output"] = _cut(output, room)
    return encode(new_bookbag(bead, fields))


def write_submission(
    outbox: str,
    name: str,
    bead: str,
    *,
    output: str = "",
    summary: str = "",
    ac_met: Sequence[str] = (),
    blockers: Sequence[str] = (),
) -> None:
    """Write a submission as ``outbox/name``, in one step.

    Raises:
        BookbagError: As ``make_submission``.
        OSError: The outbox can't be written.
    """
    data = make_submission(bead, output=output, summary=summary, ac_met=ac_met, blockers=blockers)
    files.replace_file(outbox, name, data)


def check_submission(data: bytes, bead: str) -> tuple[dict[str, Any], list[str]]:
    """Take from a submission what a student may say.

    Args:
        data: The file's bytes, read by the caller from the outbox (no links, regular file).
        bead: The bead whose outbox it was.

    Returns:
        The student's fields, and the names of other fields that were filled and left out (cut to 80 characters,
        at most 50): to be reported, never used.

    Raises:
        BookbagError: It is refused as a whole; the message says why.
    """
    check_bead(bead)
    if len(data) > MAX_BYTES:
        raise BookbagError(f"the submission has {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        bag = decode(data, "the submission")
    except BookbagCorruptError as error:
        raise BookbagError(error.message) from error
    if bag.get("bead") != bead:
        raise BookbagError(f"the submission is for bead {str(bag.get('bead'))[:80]!r}, not {bead!r}")
    version = bag.get("schema_version", SCHEMA_VERSION)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BookbagError(
            f"the submission has schema_version {str(version)[:20]}; this program knows {SCHEMA_VERSION}"
        )
    _refuse_judgment(bag)
    fields = {name: _field(name, bag[name]) for name in STUDENT_FIELDS if name in bag}
    dropped = [name[:80] for name, value in bag.items() if name not in fields and not _harmless(name, value)]
    return fields, dropped[:50]


def _refuse_judgment(bag: dict[str, Any]) -> None:
    if bag.get("accepted", False) is not False:
        raise BookbagError("the submission says that it is accepted; only the principal decides that")
    if bag.get("state", WRITTEN) != WRITTEN:
        raise BookbagError(f"the submission says that its state is {str(bag['state'])[:20]!r}, not {WRITTEN}")
    for teacher in TEACHERS:
        if bag.get(f"{teacher}_verdict", NOT_REVIEWED) != NOT_REVIEWED:
            raise BookbagError(f"the submission brings a verdict of {teacher}")
        if bag.get(f"{teacher}_seal") is not None:
            raise BookbagError(f"the submission brings a seal of {teacher}")


def _field(name: str, value: object) -> object:
    if FIELDS[name].kind == "text":
        if isinstance(value, str):
            return value
        raise BookbagError(f"the submission's {name} is not text")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BookbagError(f"the submission's {name} is not a list of texts")
    if len(value) > MAX_ITEMS:
        raise BookbagError(f"the submission's {name} has {len(value)} items; the limit is {MAX_ITEMS}")
    return value


def _harmless(name: str, value: object) -> bool:
    """Whether leaving a field out loses nothing: it is at its default, or only says whose submission this is."""
    return name in {"bead", "timestamp"} or (name in FIELDS and value == FIELDS[name].default)


def _cut(output: str, room: int) -> str:
    """Return the longest beginning of ``output`` that fits into ``room`` bytes of JSON, with a closing line."""
    low, high = 0, len(output)
    while low < high:
        middle = (low + high + 1) // 2
        if len(json.dumps(output[:middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return f"{output[:low]}\n[cut here: {len(output) - low} characters more]"
