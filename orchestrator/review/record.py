"""Writes a review into its bookbag, sealed, in one locked read-modify-write that touches no other teacher's field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from orchestrator.bookbag import locked_change, verdict_of
from orchestrator.bookbag.record import TEACHERS, now
from orchestrator.bookbag.seal import make_seal, output_digest
from orchestrator.bookbag.states import advance, state_after_review
from orchestrator.errors import ConfigError, ReviewError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.bookbag import Dirs
    from orchestrator.review.reviewer import Review

Mode = Literal["async", "sync"]

_CUT_LIMIT: Final = 200  # names of what was not seen; the count of all is in the summary
_KEY_BYTES: Final = 16


def read_seal_key(path: str | Path) -> bytes:
    """Return a teacher's key from its file, which holds it as hex digits.

    Raises:
        ConfigError: the file can't be read, or holds no key.
    """
    try:
        key = bytes.fromhex(Path(path).read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The seal key {path} can't be read: {type(error).__name__}.",
            next_step="Run `school up`; it makes the key.",
        ) from None
    if len(key) < _KEY_BYTES:
        raise ConfigError(f"The seal key {path} is too short.", next_step="Remove it and run `school up`.")
    return key


def record_review(
    bead: str, teacher: str, review: Review, key: bytes, *, mode: Mode = "async", dirs: Dirs | None = None
) -> dict[str, Any]:
    """Record one teacher's review: its own fields, its seal, the union of findings, the next state (R-11).

    Returns:
        The bookbag as written.

    Raises:
        ReviewError: the bookbag is gone or locked for too long; this teacher's verdict is there already; or the commit
            or the output is another than the one that was reviewed.
        TransitionError: the bead's state takes no verdict of this teacher.
        SealError: the review can't be sealed.
        BookbagCorruptError: the bookbag can't be read.
    """
    if review.teacher != teacher:
        raise ReviewError(f"A review by {review.teacher} can't be recorded as {teacher}'s.")

    def change(bag: dict[str, Any]) -> dict[str, Any]:
        _check_same(bag, review)
        if verdict_of(bag, teacher):
            raise ReviewError(f"{teacher.upper()} has reviewed {bead} already.")
        state = state_after_review(str(bag.get("state")), teacher)
        return advance(_with_review(bag, review, key, mode), state, teacher)  # type: ignore[arg-type]

    return _written(bead, locked_change(bead, change, dirs=dirs))


def record_sync(
    bead: str, reviews: Sequence[Review], keys: Mapping[str, bytes], dirs: Dirs | None = None
) -> dict[str, Any]:
    """Record the reviews that the principal made in the teachers' place, all in one write (R-11, R-39).

    A verdict that a teacher has given meanwhile stands; the one made in its place is dropped. When only one teacher's
    place was taken and the other has not spoken yet, the bead moves on as if that teacher had reviewed it.

    Returns:
        The bookbag as written.

    Raises:
        ReviewError: as ``record_review``.
        TransitionError: the bead is past its review.
        SealError: a review can't be sealed.
        BookbagCorruptError: the bookbag can't be read.
    """

    def change(bag: dict[str, Any]) -> dict[str, Any] | None:
        missing = [review for review in reviews if not verdict_of(bag, review.teacher)]
        if not missing:
            return None
        for review in missing:
            _check_same(bag, review)
            bag = _with_review(bag, review, keys[review.teacher], "sync")
        if all(verdict_of(bag, teacher) for teacher in TEACHERS):
            return advance(bag, "REVIEWED", "principal")
        (teacher,) = (review.teacher for review in missing)  # two would be both
        return advance(bag, state_after_review(str(bag.get("state")), teacher), teacher)  # type: ignore[arg-type]

    return _written(bead, locked_change(bead, change, dirs=dirs))


def _written(bead: str, bag: dict[str, Any] | None) -> dict[str, Any]:
    if bag is None:
        raise ReviewError(f"The bookbag of {bead} is gone, or its lock was not to be had in time.")
    return bag


def _check_same(bag: Mapping[str, Any], review: Review) -> None:
    if bag.get("bead") != review.bead or bag.get("head_sha") != review.head_sha:
        raise ReviewError(f"The bookbag of {review.bead} is no longer about the commit {review.head_sha[:12]}.")
    output = bag.get("output")
    if not isinstance(output, str) or output_digest(output) != review.output_sha256:
        raise ReviewError(f"The output of {review.bead} changed while it was reviewed.")


def _with_review(bag: dict[str, Any], review: Review, key: bytes, mode: Mode) -> dict[str, Any]:
    findings = [finding.as_dict() for finding in review.findings]
    sealed: dict[str, Any] = {
        "verdict": review.verdict,
        "score": review.score,
        "confidence": review.confidence,
        "findings": findings,
        "ac_met": [str(criterion) for criterion in review.ac_met if criterion.met],
        "summary": review.summary,
        "lens": review.lens,
        "reviewed_at": now(),
    }
    seal = make_seal(
        key,
        bead=review.bead,
        head_sha=review.head_sha,
        teacher=review.teacher,
        evidence_sha256=review.evidence_sha256,
        output_sha256=review.output_sha256,
        mode=mode,
        model=review.model,
        **sealed,
    )
    own = sealed | {
        "seal": seal,
        "cut": list(review.cut[:_CUT_LIMIT]),
        "second_look": review.second_look,
        "usage": {
            "calls": review.usage.calls,
            "prompt_tokens": review.usage.prompt_tokens,
            "completion_tokens": review.usage.completion_tokens,
        },
        "parked": "",
    }
    known = bag.get("findings")
    union = list(known) if isinstance(known, list) else []
    union += [finding for finding in findings if finding not in union]
    return {**bag, "findings": union} | {f"{review.teacher}_{name}": value for name, value in own.items()}
