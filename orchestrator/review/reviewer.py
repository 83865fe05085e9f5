"""One review of one bead by one teacher: ask, read, doubt, score. What is not a review is a ReviewError (R-37)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.bookbag.seal import output_digest
from orchestrator.errors import ReviewError
from orchestrator.review import scoring
from orchestrator.review.answer import Answer, Criterion, Finding, parse_answer
from orchestrator.review.budget import DEFAULT_BUDGET, Selection, select
from orchestrator.review.lenses import lens_names, lenses_of
from orchestrator.review.model import Message, ModelClient, Usage
from orchestrator.review.prompt import REPORT, Fence, system_prompt, user_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.review.evidence import Evidence

DEFAULT_TIMEOUT: Final = 90.0  # seconds, one attempt with everything in it
_ECHO_LIMIT: Final = 20_000  # characters of an unreadable answer that are shown to the model again


@dataclass(frozen=True, slots=True)
class Review:
    """A review that was made. ``findings`` are worst first, ``cut`` names what the model did not see."""

    teacher: str
    bead: str
    head_sha: str
    verdict: str
    score: int
    confidence: float
    findings: tuple[Finding, ...]
    ac_met: tuple[Criterion, ...]
    summary: str
    lens: str
    usage: Usage
    model: str
    evidence_sha256: str
    output_sha256: str = ""
    cut: tuple[str, ...] = ()
    second_look: bool = False


class Reviewer:
    """Reviews beads as one teacher.

    Args:
        teacher: ``cto`` or ``coo``.
        client: Where the model is asked.
        model: The model's alias at the gateway.
        budget: Characters of evidence in one call.
        persona: The teacher's SOUL.md; put before everything else.
        timeout: Seconds for one attempt: the call, a repair, and a second look.

    Raises:
        ReviewError: there is no such teacher.
    """

    def __init__(
        self,
        teacher: str,
        client: ModelClient,
        model: str,
        budget: int = DEFAULT_BUDGET,
        *,
        persona: str = "",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        lenses_of(teacher)
        self.teacher = teacher
        self._client = client
        self._model = model
        self._budget = budget
        self._persona = persona
        self._timeout = timeout

    def review(self, bag: Mapping[str, Any], evidence: Evidence, *, notes: str = "") -> Review:
        """Make one review. All lenses are asked in one call; a PASS without a finding is doubted in a second (R-37).

        Of the bookbag only bead, head_sha, difficulty and output are read: never the other verdict (R-30). ``notes`` is
        what the teacher remembers of other work, as data.

        Raises:
            ReviewError: evidence of another bead or commit, no answer, or an unreadable one. Never a PASS instead.
        """
        bead, head_sha, output = bag.get("bead"), bag.get("head_sha"), bag.get("output")
        if bead != evidence.bead or not head_sha or head_sha != evidence.head_sha:
            raise ReviewError(
                f"The evidence is of {evidence.bead} at {evidence.head_sha[:12]}, the bookbag of {bead} at "
                f"{str(head_sha)[:12]}: they must be one.",
                next_step=f"Write the evidence again, then `school review {evidence.bead}`.",
            )
        if not isinstance(output, str):
            raise ReviewError(f"The bookbag of {bead} has no readable output.")
        scoring.graded_as(evidence.difficulty)  # before a token is spent
        deadline = time.monotonic() + self._timeout
        selection = select(evidence, self._budget)
        asked = _Asked()
        answer, cut = self._look(evidence, output, selection, deadline, asked, notes, adversarial=False)
        if not evidence.files and any(entry.startswith(REPORT) for entry in cut):  # then the report is the work
            selection = replace(selection, unseen=(*selection.unseen, "(the end of the report)"))
        own = _unreviewed(selection)
        second_look = answer.verdict == scoring.PASS and not answer.findings
        if second_look:
            first = answer
            answer, _ = self._look(evidence, output, selection, deadline, asked, notes, adversarial=True)
            answer = replace(
                answer,
                confidence=min(first.confidence, answer.confidence),
                ac_met=answer.ac_met or first.ac_met,
            )
        missing = (*selection.cut, *cut)
        review = self._decide(answer, own, evidence, asked)
        if missing:
            review = replace(review, summary=f"{review.summary} Not seen whole: {len(missing)} parts, see cut.")
        return replace(review, cut=missing, second_look=second_look, output_sha256=output_digest(output))

    def _look(
        self,
        evidence: Evidence,
        output: str,
        selection: Selection,
        deadline: float,
        asked: _Asked,
        notes: str,
        *,
        adversarial: bool,
    ) -> tuple[Answer, tuple[str, ...]]:
        """Ask once; an unreadable answer may be repaired once (issue: one repair attempt, then fail closed)."""
        fence = Fence()
        user, cut = user_prompt(evidence, output, selection, fence, notes)
        system = system_prompt(
            self.teacher, evidence.bead, fence.boundary, persona=self._persona, adversarial=adversarial
        )
        messages = [Message("system", system), Message("user", user)]
        text = self._ask(messages, evidence.bead, deadline, asked)
        try:
            return parse_answer(text), cut
        except ReviewError as error:
            messages += [Message("assistant", text[:_ECHO_LIMIT] or "(empty)"), Message("user", _repair(error.message))]
        text = self._ask(messages, evidence.bead, deadline, asked)
        try:
            return parse_answer(text), cut
        except ReviewError as error:
            raise ReviewError(f"The model's answer is not a review, also after a repair: {error.message}") from None

    def _ask(self, messages: list[Message], bead: str, deadline: float, asked: _Asked) -> str:
        completion = self._client.complete(self._model, messages, bead=bead, deadline=deadline)
        asked.usage += completion.usage
        asked.model = completion.model or self._model
        return completion.text

    def _decide(self, answer: Answer, own: tuple[Finding, ...], evidence: Evidence, asked: _Asked) -> Review:
        findings = (*own, *answer.findings)
        findings = tuple(sorted(findings, key=lambda finding: scoring.SEVERITIES.index(finding.severity)))
        severities = [finding.severity for finding in findings]
        summary = answer.summary
        if answer.dropped:
            summary += f" ({answer.dropped} lesser findings were over the limit and are not listed.)"
        return Review(
            teacher=self.teacher,
            bead=evidence.bead,
            head_sha=evidence.head_sha,
            verdict=scoring.verdict(severities, answer.verdict),
            score=scoring.score(severities, evidence.difficulty),
            confidence=answer.confidence,
            findings=findings,
            ac_met=answer.ac_met,
            summary=summary,
            lens=lens_names(self.teacher),
            usage=asked.usage,
            model=asked.model,
            evidence_sha256=evidence.digest,
        )


@dataclass(slots=True)
class _Asked:
    """What was asked so far in one review."""

    usage: Usage = field(default_factory=Usage)
    model: str = ""


def _repair(reason: str) -> str:
    return (
        f"That could not be read as a review: {reason}\n"
        "Give the same review again as one JSON object of the form that was asked for, without any other text."
    )


def _unreviewed(selection: Selection) -> tuple[Finding, ...]:
    """Report changes that no judge has seen: what leaves the school was passed whole (R-44).

    A lock file is written by a tool from a file that was reviewed, so its unseen rest weighs less.
    """
    return tuple(
        Finding(
            section="; ".join(paths[:10]) + (f" and {len(paths) - 10} more" if len(paths) > 10 else ""),
            issue_class="unreviewed_change",
            severity=severity,
            citation="",
            description="The work is larger than what one review reads; a part of it was judged by nobody.",
            suggestion="Split the task, or raise SCHOOL_REVIEW_BUDGET and run `school review` again.",
        )
        for paths, severity in ((selection.unseen, "HIGH"), (selection.unseen_locks, "MEDIUM"))
        if paths
    )
