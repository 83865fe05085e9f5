"""Turns a model's answer into findings, or refuses it. What is not clearly a review is none (R-37)."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from orchestrator.errors import ReviewError
from orchestrator.review.scoring import FAIL, PASS, SEVERITIES
from orchestrator.review.visible import visible

ANSWER_LIMIT: Final = 400_000  # characters
FINDINGS_LIMIT: Final = 50
CRITERIA_LIMIT: Final = 100
_CLIPS: Final = {"section": 120, "issue_class": 120, "citation": 600, "description": 2000, "suggestion": 2000}
_SUMMARY_CLIP: Final = 4000
_CRITERION_CLIP: Final = 600
_FENCE: Final = re.compile(r"^```[A-Za-z]*[ \t]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)
_THINKING: Final = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)

SCHEMA: Final = """{
  "verdict": "PASS" | "FAIL",
  "confidence": number from 0 to 1,
  "summary": "two or three sentences for a person",
  "ac_met": [{"criterion": "one acceptance criterion", "met": true | false, "evidence": "path:line, or what shows it"}],
  "findings": [{"section": "path:line or part of the output", "issue_class": "short name of the kind of problem",
    "severity": "CRITICAL" | "HIGH" | "MEDIUM" | "LOW", "citation": "the lines it is about, quoted",
    "description": "what is wrong and what follows from it", "suggestion": "what to do instead"}]
}"""
"""The form of an answer, as it is shown to the model (R-10)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding in canonical form (R-10)."""

    section: str
    issue_class: str
    severity: str
    citation: str
    description: str
    suggestion: str

    def as_dict(self) -> dict[str, str]:
        """Return it as the bookbag holds it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Criterion:
    """One acceptance criterion, whether it is met, and what shows it."""

    criterion: str
    met: bool
    evidence: str

    def __str__(self) -> str:
        """Return it as one line, for the bookbag's list of criteria that are met."""
        return f"{self.criterion} ({self.evidence})" if self.evidence else self.criterion


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, checked. ``findings`` are worst first, ``dropped`` counts those over the limit."""

    verdict: str
    confidence: float
    summary: str
    findings: tuple[Finding, ...]
    ac_met: tuple[Criterion, ...]
    dropped: int = 0


def parse_answer(text: str) -> Answer:
    """Read an answer: one JSON object, alone or in exactly one code fence.

    Keys that the form does not know are ignored; a key that it needs and a value it does not allow are errors.

    Raises:
        ReviewError: the message says what is wrong, in words that a repair prompt can repeat.
    """
    answer = _object(text)
    verdict = _word(answer, "verdict", (PASS, FAIL))
    findings = [_finding(entry, number) for number, entry in enumerate(_list(answer, "findings"), 1)]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    criteria = [_criterion(entry, number) for number, entry in enumerate(_list(answer, "ac_met"), 1)]
    if verdict == FAIL and not findings:
        raise ReviewError("The answer says FAIL without a finding that says why.")
    if verdict == PASS and not findings and not all(criterion.met for criterion in criteria):
        raise ReviewError("The answer says PASS without a finding and names a criterion that is not met.")
    return Answer(
        verdict=verdict,
        confidence=_confidence(answer),
        summary=_text(answer, "summary", _SUMMARY_CLIP),
        findings=tuple(findings[:FINDINGS_LIMIT]),
        ac_met=tuple(criteria[:CRITERIA_LIMIT]),
        dropped=max(0, len(findings) - FINDINGS_LIMIT),
    )


def _object(text: str) -> dict[str, Any]:
    if len(text) > ANSWER_LIMIT:
        raise ReviewError(f"The answer has {len(text)} characters; the limit is {ANSWER_LIMIT}.")
    bare = _THINKING.sub("", text, count=1).strip()
    if not bare:
        raise ReviewError("The answer is empty.")
    if not bare.startswith("{"):
        fences = _FENCE.findall(bare)
        if len(fences) != 1:
            raise ReviewError(
                f"The answer is neither a JSON object nor one code fence that holds one ({len(fences)} fences)."
            )
        bare = fences[0]
    try:
        answer = json.loads(bare, object_pairs_hook=_unique, parse_constant=_no_constant)
    except ReviewError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReviewError(f"The answer is not valid JSON: {error!s:.200}") from None
    if not isinstance(answer, dict):
        raise ReviewError("The answer is JSON but not an object.")
    return answer


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):  # two verdicts in one object: which one counts is not for us to choose
        raise ReviewError("The answer holds the same key twice in one object.")
    return result


def _no_constant(name: str) -> Any:
    raise ReviewError(f"The answer holds {name}, which is not JSON.")


def _list(answer: dict[str, Any], key: str) -> list[Any]:
    value = answer.get(key)
    if not isinstance(value, list):
        raise ReviewError(f'"{key}" must be a list.')
    return value


def _confidence(answer: dict[str, Any]) -> float:
    value = answer.get("confidence")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ReviewError('"confidence" must be a number from 0 to 1.')
    return round(float(value), 4)


def _text(source: dict[str, Any], key: str, limit: int, *, required: bool = True, where: str = "") -> str:
    value = source.get(key, None if required else "")
    if not isinstance(value, str) or (required and not value.strip()):
        raise ReviewError(f'{where}"{key}" must be a text{" that is not empty" if required else ""}.')
    text, _ = visible(value[: 2 * limit].strip())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _word(source: dict[str, Any], key: str, allowed: tuple[str, ...], where: str = "") -> str:
    value = source.get(key)
    word = value.strip().upper() if isinstance(value, str) else ""
    if word not in allowed:
        raise ReviewError(f'{where}"{key}" must be one of {", ".join(allowed)}.')
    return word


def _finding(entry: Any, number: int) -> Finding:
    where = f"Finding {number}: "
    if not isinstance(entry, dict):
        raise ReviewError(f"{where}not an object.")
    return Finding(
        section=_text(entry, "section", _CLIPS["section"], required=False, where=where),
        issue_class=_text(entry, "issue_class", _CLIPS["issue_class"], where=where),
        severity=_word(entry, "severity", SEVERITIES, where),
        citation=_text(entry, "citation", _CLIPS["citation"], required=False, where=where),
        description=_text(entry, "description", _CLIPS["description"], where=where),
        suggestion=_text(entry, "suggestion", _CLIPS["suggestion"], required=False, where=where),
    )


def _criterion(entry: Any, number: int) -> Criterion:
    where = f"Criterion {number}: "
    if not isinstance(entry, dict):
        raise ReviewError(f"{where}not an object.")
    met = entry.get("met")
    if not isinstance(met, bool):
        raise ReviewError(f'{where}"met" must be true or false.')
    return Criterion(
        criterion=_text(entry, "criterion", _CRITERION_CLIP, where=where),
        met=met,
        evidence=_text(entry, "evidence", _CRITERION_CLIP, required=False, where=where),
    )
