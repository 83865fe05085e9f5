"""``school verify-record``: checks a bead's record again from what was archived, claim by claim, and says what holds.

Nothing is taken from the report or from memory. What can't be looked at any more (evidence past its days, a repository
that is gone) is said to be unknown, which is neither good nor bad.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator import bookbag
from orchestrator.bookbag import files
from orchestrator.errors import BookbagCorruptError, ConfigError, SealError
from orchestrator.principal.acceptance import TEACHERS, decide
from orchestrator.principal.keys import counting, in_force
from orchestrator.principal.standing import archived_bag, why_moved
from orchestrator.review.record import read_seal_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.home import Home

INDEX_LIMIT = 16 << 20
PART_LIMIT = 64 << 20

State = Literal["holds", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a record says, and whether it is so. ``detail`` may hold a stranger's text."""

    name: str
    state: State
    detail: str


def verify_record(home: Home, row: Mapping[str, Any]) -> list[Claim]:
    """Check a bead's record.

    Args:
        home: The home.
        row: The bead's row of the ledger.
    """
    bead = str(row["bead"])
    try:
        bag = archived_bag(home, bead)
    except BookbagCorruptError as error:
        return [Claim("record", "broken", error.message)]
    if bag is None:
        return [Claim("record", "broken", f"it is neither in {home.archive} nor in {home.bookbags}")]
    return [
        _same("record", bag.get("bead"), bead),
        _same("commit", bag.get("head_sha"), str(row["head_sha"] or "")),
        _same("base", bag.get("base_sha"), str(row["base_sha"])),
        *(_seal(home, bag, teacher) for teacher in TEACHERS),
        *_evidence(home, bag, bead),
        _acceptance(row, bag),
        _repository(row),
    ]


def _same(name: str, said: object, expected: str) -> Claim:
    if said == expected:
        return Claim(name, "holds", expected)
    return Claim(name, "broken", f"the record says {str(said)[:80]!r}, the ledger {expected!r}")


def _seal(home: Home, bag: Mapping[str, Any], teacher: str) -> Claim:
    name = f"{teacher}'s seal"
    if not bookbag.verdict_of(bag, teacher):
        return Claim(name, "unknown", "no verdict was given")
    try:
        keys = counting(home, teacher)
        bookbag.verify_seal(keys, bag, teacher)
        current = bookbag.key_id(read_seal_key(in_force(home, teacher)))
    except (SealError, ConfigError) as error:
        return Claim(name, "broken", error.message)
    used = str(bag[f"{teacher}_seal"]["key_id"])
    age = "in force" if used == current else "retired"
    said = f"{bag[f'{teacher}_verdict']}, score {bag[f'{teacher}_score']}, {bag[f'{teacher}_reviewed_at']}"
    return Claim(name, "holds", f"{said}; key {used}, {age}")


def _evidence(home: Home, bag: Mapping[str, Any], bead: str) -> Iterator[Claim]:
    """Compare what lies there with what each seal names, and each part with what the index names."""
    folder = str(home.evidence / bead)
    try:
        raw = files.read_file(folder, "evidence.json", limit=INDEX_LIMIT)
    except (BookbagCorruptError, OSError) as error:
        yield Claim("evidence", "broken", str(error))
        return
    if raw is None:
        yield Claim("evidence", "unknown", "it is not kept any more (SCHOOL_ARCHIVE_DAYS)")
        return
    digest = hashlib.sha256(raw).hexdigest()
    for teacher in TEACHERS:
        seal = bag.get(f"{teacher}_seal")
        if isinstance(seal, dict) and seal.get("evidence_sha256") != digest:
            yield Claim("evidence", "broken", f"{teacher}'s seal is about other evidence than what lies in {folder}")
            return
    changed = _changed_parts(folder, raw)
    if changed:
        yield Claim("evidence", "broken", f"changed after the review: {', '.join(changed[:10])}")
    else:
        yield Claim("evidence", "holds", digest)


def _changed_parts(folder: str, raw: bytes) -> list[str]:
    try:
        listed = [(str(part["name"]), str(part["sha256"])) for part in json.loads(raw).get("parts", [])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ["evidence.json is not an index"]
    changed = []
    for name, digest in listed:
        where, _, base = name.rpartition("/")
        try:
            data = files.read_file(f"{folder}/{where}" if where else folder, base, limit=PART_LIMIT)
        except (BookbagCorruptError, OSError, ValueError):
            data = None
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            changed.append(name[:200])
    return changed


def _acceptance(row: Mapping[str, Any], bag: Mapping[str, Any]) -> Claim:
    """Apply R-39 again and compare the answer with the record and with the ledger."""
    progress = row["data"].get("progress") or {}
    decision = decide(bag, str((progress.get("verification") or {}).get("status")))
    said, outcome = bag.get("accepted") is True, row["outcome"] == "accepted"
    reasons = "; ".join(decision.reasons) or "both judges passed it"
    if said == outcome == decision.accepted:
        return Claim("acceptance", "holds", f"{'accepted' if said else 'not accepted'}: {reasons}")
    words = f"the record says {said}, the ledger {row['outcome']}, the rule {decision.accepted}"
    return Claim("acceptance", "broken", f"{words} ({reasons})")


def _repository(row: Mapping[str, Any]) -> Claim:
    if row["outcome"] != "accepted":
        return Claim("repository", "unknown", "only accepted work has a branch")
    reason = why_moved(row)
    return Claim(
        "repository", "broken" if reason else "holds", reason or "commit, kept ref and branch are where they were"
    )
