"""Seals: a teacher's HMAC under what it said, about which commit, on which evidence.

Only a teacher holds its key (and the principal, which verifies); a student never does. The MAC is taken over the
canonical JSON of everything in ``_payload``: a changed field, a review moved to another bead, commit or teacher, and
an exchanged output all break it. Findings, scores and texts are compared as they lie in the bookbag, so a bag whose
seal verifies says exactly what the teacher said.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.bookbag.record import FAIL, PASS, TEACHERS
from orchestrator.errors import SealError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
MODES = ("async", "sync")
MIN_KEY_BYTES = 16

_HEX = frozenset("0123456789abcdef")
# what a seal covers that lies in the bookbag under the teacher's prefix
_REVIEW = ("verdict", "score", "confidence", "findings", "ac_met", "summary", "lens", "reviewed_at")


def key_id(key: bytes) -> str:
    """Return the public name of a key: 12 hex digits of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:12]


def output_digest(output: str) -> str:
    """Return the SHA-256 (hex) of a bookbag's output text. Any text has one, lone surrogates included."""
    return hashlib.sha256(output.encode("utf-8", "surrogatepass")).hexdigest()


def canonical(value: object) -> bytes:
    """Return the one JSON text of a value: sorted keys, no white space, ASCII, no NaN.

    Raises:
        SealError: JSON can't express it.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SealError(f"what is to be sealed is not JSON: {error}") from error
    return text.encode("ascii")


def make_seal(
    key: bytes,
    *,
    bead: str,
    head_sha: str,
    teacher: str,
    verdict: str,
    score: float | None,
    confidence: float | None,
    findings: Sequence[Mapping[str, Any]],
    ac_met: Sequence[str],
    summary: str,
    lens: str | Sequence[str],
    evidence_sha256: str,
    output_sha256: str,
    mode: Literal["async", "sync"],
    reviewed_at: str,
    model: str,
) -> dict[str, Any]:
    """Seal a review. The values are those that go into the bookbag, unchanged.

    Returns:
        The seal for ``{teacher}_seal``.

    Raises:
        SealError: A value can't be sealed: an empty verdict, an unknown teacher or mode, no digest, a short key.
    """
    seal = {
        "v": VERSION,
        "key_id": key_id(key),
        "mac": "",
        "evidence_sha256": evidence_sha256,
        "output_sha256": output_sha256,
        "mode": mode,
        "model": model,
    }
    review = dict(zip(_REVIEW, (verdict, score, confidence, findings, ac_met, summary, lens, reviewed_at), strict=True))
    _check(seal, teacher, verdict)
    seal["mac"] = _mac(key, _payload(seal, teacher, bead, head_sha, review))
    return seal


def verify_seal(keys: bytes | Mapping[str, bytes], bag: Mapping[str, Any], teacher: str) -> None:
    """Check that ``teacher`` said exactly what the bookbag says it said, about this bead, commit and output.

    Whether the evidence that the seal names is the evidence that was handed out is the caller's to compare
    (``evidence_sha256``).

    Args:
        keys: That teacher's key; or its keys, old ones too, by ``key_id``.
        bag: The record.
        teacher: ``cto`` or ``coo``.

    Raises:
        SealError: The seal is missing, malformed, of an unknown key, or does not fit the record.
    """
    seal = bag.get(f"{teacher}_seal")
    where = f"{teacher}'s seal of bead {str(bag.get('bead'))[:80]}"
    if not isinstance(seal, Mapping):
        raise SealError(f"{where} is missing", next_step="the review has to be made again")
    _check(seal, teacher, bag.get(f"{teacher}_verdict"))
    mac = seal.get("mac")
    if not _is_hex(mac):
        raise SealError(f"{where} has no MAC")
    known = {key_id(keys): keys} if isinstance(keys, bytes) else keys
    key = known.get(str(seal["key_id"]))
    if key is None:
        raise SealError(f"{where} was made with the unknown key {str(seal['key_id'])[:12]!r}")
    missing = [name for name in _REVIEW if f"{teacher}_{name}" not in bag]
    if missing:
        raise SealError(f"{where}: the bookbag has no {teacher}_{missing[0]}")
    output = bag.get("output")
    if not isinstance(output, str) or not hmac.compare_digest(output_digest(output), str(seal["output_sha256"])):
        raise SealError(f"{where} is about another output")
    review = {name: bag[f"{teacher}_{name}"] for name in _REVIEW}
    expected = _mac(key, _payload(seal, teacher, bag.get("bead"), bag.get("head_sha"), review))
    if not hmac.compare_digest(expected, str(mac)):
        raise SealError(f"{where} does not verify: the record was changed after the review, or the key is not its own")


def _payload(
    seal: Mapping[str, Any], teacher: str, bead: object, head_sha: object, review: Mapping[str, Any]
) -> dict[str, object]:
    named = {name: seal[name] for name in ("v", "key_id", "evidence_sha256", "output_sha256", "mode", "model")}
    return {**review, **named, "bead": bead, "head_sha": head_sha, "teacher": teacher}


def _mac(key: bytes, payload: Mapping[str, object]) -> str:
    if len(key) < MIN_KEY_BYTES:
        raise SealError(f"a seal's key has at least {MIN_KEY_BYTES} bytes, this one {len(key)}")
    return hmac.new(key, canonical(payload), hashlib.sha256).hexdigest()


def _is_hex(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and _HEX.issuperset(value)


def _check(seal: Mapping[str, Any], teacher: str, verdict: object) -> None:
    """Raise SealError unless a seal's own fields, its teacher and its verdict are of the known kind."""
    if teacher not in TEACHERS:
        raise SealError(f"{teacher!r} is not a teacher")
    if verdict not in (PASS, FAIL):
        raise SealError(f"a seal of {teacher} covers PASS or FAIL, not {str(verdict)[:20]!r}")
    if type(seal.get("v")) is not int or seal["v"] != VERSION:
        raise SealError(f"a seal of {teacher} has version {str(seal.get('v'))[:20]}; this program knows {VERSION}")
    if seal.get("mode") not in MODES:
        raise SealError(f"a seal of {teacher} has mode {str(seal.get('mode'))[:20]!r}, not async or sync")
    for name in ("key_id", "model"):
        if not isinstance(seal.get(name), str):
            raise SealError(f"a seal of {teacher} has no {name}")
    for name in ("evidence_sha256", "output_sha256"):
        if not _is_hex(seal.get(name)):
            raise SealError(f"a seal of {teacher} has no {name}")
