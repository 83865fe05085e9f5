"""The director: what kind of task this is, and which student profile gets it (R-40 to R-42). It decides and explains.

Rules come first (``routing``); a model is asked once, and only where no rule can tell and SCHOOL_DIRECTOR_MODEL names
one. A role that a person gives is not questioned: eligibility is for who is chosen here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orchestrator.bookbag import slug
from orchestrator.errors import BlockedError
from orchestrator.leaf.brief import ROLES
from orchestrator.principal.efc import Judged, efc_of, history
from orchestrator.principal.request import DIFFICULTIES, SpawnRequest, one_of
from orchestrator.principal.routing import BLOCKER, Answer, Profile, Routing, load_routing
from orchestrator.principal.scoring import GATES, START, current
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.principal.ledger import Ledger

READINESS = {"easy": 3, "medium": 5, "hard": 7, "diploma": 8}
"""What a profile's readiness, 1 to 10, must reach (R-40)."""

PRIOR_WEIGHT, PRIOR_RATE = 2.0, 7 / 9
"""A profile without history rates itself 8, ready for anything: its score alone gates it then."""

RATED_BEADS = 10

Asked = Callable[[str], "ModelAnswer | None"]
"""Asks a model about a task; None when it did not answer usefully."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the one model call said; anything it left out is None."""

    role: str | None = None
    domain: str | None = None
    difficulty: str | None = None
    readiness: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A profile, measured at the task's gate. ``refused`` says why it is not eligible, "" when it is."""

    profile: str
    role: str
    score: float
    readiness: int
    efc: float
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """What the director decided, and why."""

    role: Answer
    domain: Answer
    difficulty: Answer
    gate: int
    readiness_needed: int
    profile: Profile | None
    candidates: tuple[Candidate, ...]
    blocked: str = ""
    files: tuple[str, ...] = field(default=())

    def sentence(self) -> str:
        """Return the decision with its reasons as one line."""
        parts = [f"{name}: {a.value}, {a.by}" for name, a in self._answers()]
        if self.profile is not None and self.candidates:
            best = next(c for c in self.candidates if c.profile == self.profile.name)
            parts.append(
                f"{best.profile} (score {best.score:.1f}, gate {self.gate}; readiness {best.readiness}, "
                f"{self.readiness_needed} needed)"
            )
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``school route --json`` prints."""
        return {
            **{name: asdict(answer) for name, answer in self._answers()},
            "gate": self.gate,
            "readiness_needed": self.readiness_needed,
            "profile": self.profile.name if self.profile else None,
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "blocked": self.blocked,
            "files": list(self.files),
        }

    def _answers(self) -> tuple[tuple[str, Answer], ...]:
        return ("role", self.role), ("domain", self.domain), ("difficulty", self.difficulty)


class Director:
    """Routes tasks of one home. Reads scores and history, writes nothing."""

    def __init__(self, ledger: Ledger | None, routing: Routing, ask: Asked | None = None) -> None:
        self._ledger = ledger
        self._routing = routing
        self._ask = ask

    def route(
        self,
        task: str,
        *,
        labels: Sequence[str] = (),
        role: str | None = None,
        domain: str | None = None,
        difficulty: str | None = None,
        readiness: int | None = None,
    ) -> Route:
        """Decide; what is given is taken as it is.

        Args:
            task: Its text.
            labels: Of the task; ``blocker`` among them makes it one.
            role: Given by a person: eligibility is skipped (R-40).
            domain: Given by a person.
            difficulty: Given by a person.
            readiness: 1 to 10, in place of what the profiles' history says.

        Returns:
            The route; ``blocked`` holds the reason when nobody is eligible, and ``profile`` is None then.
        """
        given = {"role": role, "domain": domain, "difficulty": difficulty}
        answers = {
            question: Answer(value, "given") if value else self._routing.answer(question, task, labels)
            for question, value in given.items()
        }
        if self._ask is not None and any(not a.certain for q, a in answers.items() if q != "domain"):
            said = self._ask(task)
            if said is not None:
                answers = {q: _with_model(a, q, said) for q, a in answers.items()}
                readiness = readiness if readiness is not None else said.readiness
        level = "diploma" if answers["difficulty"].value == BLOCKER else answers["difficulty"].value
        gate, needed = GATES[level], READINESS[level]
        candidates = self._candidates(answers, level, readiness)
        if role is not None:
            named = next((p for p in self._routing.profiles.values() if p.role == role and not p.domains), None)
            chosen: Profile | None = named or Profile(f"student-{role}", role)
            candidates = tuple(c for c in candidates if chosen is not None and c.profile == chosen.name)
            blocked = ""
        else:
            eligible = [c for c in candidates if not c.refused]
            chosen = self._routing.profiles[eligible[0].profile] if eligible else None
            blocked = "" if eligible else _nobody(answers["role"].value, level, candidates)
        return Route(
            answers["role"],
            answers["domain"],
            answers["difficulty"],
            gate,
            needed,
            chosen,
            candidates,
            blocked,
            self._routing.files,
        )

    def _candidates(self, answers: dict[str, Answer], level: str, readiness: int | None) -> tuple[Candidate, ...]:
        """Return the profiles of the role, best first: by score, then by EFC, then by name."""
        found = []
        for profile in self._routing.profiles.values():
            if profile.role != answers["role"].value:
                continue
            if profile.domains and answers["domain"].value not in profile.domains:
                continue
            score, efc, past = START, 0.0, list[Judged]()
            if self._ledger is not None:
                score = current(self._ledger, profile.name)
                efc = efc_of(self._ledger, profile=profile.name).value
                past = history(self._ledger, profile.name)
            ready = readiness if readiness is not None else self_rated(past, level)
            refused = []
            if score < GATES[level]:
                refused.append(f"its score {score:.1f} is below the gate {GATES[level]} of {level}")
            if ready < READINESS[level]:
                refused.append(f"its readiness {ready} is below {READINESS[level]}, which {level} needs")
            found.append(
                Candidate(profile.name, profile.role, round(score, 2), ready, round(efc, 4), "; ".join(refused))
            )
        return tuple(sorted(found, key=lambda c: (-c.score, -c.efc, c.profile)))


def self_rated(past: Sequence[Judged], level: str) -> int:
    """Return how ready a profile rates itself for a difficulty, 1 to 10, from its last beads (R-40).

    An accepted bead of this difficulty or a harder one speaks for it, one that failed at this or an easier one against
    it; the rest tells nothing. Without any, it is the benefit of the doubt.
    """
    order = list(DIFFICULTIES)
    good = bad = 0
    for bead in past:
        rank = order.index("diploma" if bead.difficulty == BLOCKER else bead.difficulty)
        if bead.outcome == Outcome.ACCEPTED and rank >= order.index(level):
            good += 1
        elif bead.outcome != Outcome.ACCEPTED and rank <= order.index(level):
            bad += 1
        if good + bad == RATED_BEADS:
            break
    rate = (good + PRIOR_WEIGHT * PRIOR_RATE) / (good + bad + PRIOR_WEIGHT)
    return max(1, min(10, int(1 + 9 * rate + 1e-9)))


def settle(
    request: SpawnRequest,
    director: Director,
    *,
    role: str | None,
    domain: str | None,
    difficulty: str | None,
    labels: Sequence[str] = (),
) -> SpawnRequest:
    """Return the request with role, domain, difficulty and profile as the director decides; what is given stays.

    Raises:
        BlockedError: nobody is eligible; nothing of the bead exists then.
    """
    route = director.route(request.task, labels=labels, role=role, domain=domain, difficulty=difficulty)
    if route.profile is None:
        raise BlockedError(
            route.blocked,
            next_step=f"Give the role yourself, which skips this: --role {route.role.value}; see: school scores",
        )
    profile = route.profile
    return replace(
        request,
        role=profile.role,
        domain=route.domain.value,
        difficulty=route.difficulty.value,
        profile=profile.name,
        model=request.model or profile.model,
        agent=profile.agent if request.agent == "auto" and profile.agent else request.agent,
        routed=f"director: {route.sentence()}",
    )


def director_of(home: Home, ledger: Ledger | None, ask: Asked | None = None) -> Director:
    """Return the director of a home.

    Raises:
        ConfigError: its routing rules are wrong.
    """
    return Director(ledger, load_routing(home), ask)


def _with_model(answer: Answer, question: str, said: ModelAnswer) -> Answer:
    """Take a model's answer where no rule could tell; what is not one of the school's words is not taken."""
    value = getattr(said, question)
    if answer.certain or not isinstance(value, str):
        return answer
    allowed = {"role": ROLES, "difficulty": DIFFICULTIES}.get(question)
    if allowed is None:
        value = slug(value) if any(c.isalnum() and c.isascii() for c in value) else ""
    if not value or (allowed is not None and value not in allowed):
        return answer
    return Answer(value, f"no rule fits: {said.model or 'a model'} says so")


def _nobody(role: str, level: str, candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return f"Nobody is eligible: no profile has the role {role}."
    reasons = ", ".join(f"{c.profile}: {c.refused}" for c in candidates)
    return f"Nobody is eligible for this {level} task of a {role}. {reasons}."


def check_words(*, role: str | None = None, difficulty: str | None = None) -> None:
    """Refuse a role or a difficulty that the school does not know.

    Raises:
        UsageError: names the option and what it takes.
    """
    one_of("--role", role or ROLES[0], ROLES)
    one_of("--difficulty", difficulty or DIFFICULTIES[0], (*DIFFICULTIES, BLOCKER))
