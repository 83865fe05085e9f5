"""The routing rules: read from YAML, checked, and applied to a task's text and labels. No model, no state (R-40).

``config/routing.yaml`` says in its head how a rule is written. A rule that can't be understood is an error with its
place, not a rule that never fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import yaml

from orchestrator import resources
from orchestrator.bookbag import slug
from orchestrator.errors import ConfigError, InvalidBeadError
from orchestrator.leaf.brief import ROLES
from orchestrator.principal.request import AGENTS, DIFFICULTIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from orchestrator.home import Home

QUESTIONS = {"roles": "role", "domains": "domain", "difficulties": "difficulty"}
"""Section of the file -> the question that its rules answer."""

BLOCKER = "blocker"
ALLOWED = {"role": ROLES, "difficulty": (*DIFFICULTIES, BLOCKER)}
MAX_FILE = 1 << 20
_SECTIONS = {"version", "profiles", "default", *QUESTIONS}
_CONDITIONS = {"labels", "begins", "words", "longer_than"}


@dataclass(frozen=True)
class Rule:
    """One rule: its conditions, each of which must fit when it is given, and its answer to one question."""

    name: str
    answer: str
    labels: frozenset[str] = frozenset()
    begins: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    longer_than: int | None = None
    origin: str = ""

    @cached_property
    def _anywhere(self) -> re.Pattern[str]:
        return re.compile(rf"(?<!\w)(?:{_alternatives(self.words)})(?!\w)", re.IGNORECASE)

    @cached_property
    def _first(self) -> re.Pattern[str]:
        # marks and polite words may come before
        polite = r"(?:\W|please\b|could you\b|can you\b)*"
        return re.compile(rf"\A{polite}({_alternatives(self.begins)})(?!\w)", re.IGNORECASE)

    def fits(self, text: str, labels: frozenset[str]) -> str | None:
        """Return what made it fit, in words; None when it does not fit."""
        why = []
        if self.labels:
            common = sorted(self.labels & labels)
            if not common:
                return None
            why.append(f"label {common[0]}")
        if self.begins:
            start = self._first.match(text)
            if start is None:
                return None
            why.append(f"begins with “{' '.join(start.group(1).split())}”")
        if self.words:
            found = self._anywhere.search(text)
            if found is None:
                return None
            why.append(f"“{' '.join(found.group(0).split())}”")
        if self.longer_than is not None:
            if len(text) <= self.longer_than:
                return None
            why.append(f"{len(text)} characters")
        return ", ".join(why)


@dataclass(frozen=True, slots=True)
class Profile:
    """A student profile: who can be given a task. Its score is kept under its name."""

    name: str
    role: str
    model: str | None = None
    agent: str | None = None
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question. ``by`` names what decided; ``certain`` is false for a default."""

    value: str
    by: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Routing:
    """The rules in force."""

    rules: Mapping[str, tuple[Rule, ...]]  # question -> rules, in the order in which they are asked
    profiles: Mapping[str, Profile]
    default: Mapping[str, str]
    files: tuple[str, ...] = field(default=())

    def answer(self, question: str, text: str, labels: Iterable[str]) -> Answer:
        """Answer one question (``role``, ``domain``, ``difficulty``) about a task."""
        normal = frozenset(label.strip().lower() for label in labels)
        for rule in self.rules[question]:
            why = rule.fits(text, normal)
            if why is not None:
                return Answer(rule.answer, f"{rule.name} ({why})")
        return Answer(self.default[question], "no rule fits: the default", certain=False)


def load_routing(home: Home | None = None) -> Routing:
    """Return the shipped rules, the home's own before them.

    Raises:
        ConfigError: a file can't be read or understood; the message names the file and the place in it.
    """
    shipped = resources.share("config") / "routing.yaml"
    own = home.school / "routing.yaml" if home is not None else None
    files = [own, shipped] if own is not None and own.exists() else [shipped]
    parsed = [_parse(path) for path in files]
    default = next((part.default for part in parsed if part.default), None)
    if default is None or set(default) != set(QUESTIONS.values()):
        raise ConfigError(
            f"{files[-1]} has no complete `default`.", next_step="Give it a role, a domain and a difficulty."
        )
    profiles: dict[str, Profile] = {}
    for part in reversed(parsed):
        profiles |= part.profiles
    return Routing(
        rules={q: tuple(rule for part in parsed for rule in part.rules[q]) for q in QUESTIONS.values()},
        profiles=profiles,
        default=default,
        files=tuple(str(path) for path in files),
    )


def _parse(path: Path) -> Routing:
    try:
        with path.open("rb") as file:
            data = yaml.safe_load(file.read(MAX_FILE))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} can't be read: {error}.", next_step="Correct the file; it is YAML.") from error
    where = _Where(path)
    if not isinstance(data, dict):
        raise where.wrong("", "it is not a mapping of sections")
    if unknown := sorted(map(str, set(data) - _SECTIONS)):
        raise where.wrong("", f"it has unknown sections: {', '.join(unknown)}")
    if data.get("version") != 1:
        raise where.wrong("version", f"it is {data.get('version')!r}, not 1")
    rules: dict[str, tuple[Rule, ...]] = {}
    for section, question in QUESTIONS.items():
        entries = data.get(section) or []
        if not isinstance(entries, list):
            raise where.wrong(section, "it is not a list of rules")
        rules[question] = tuple(_rule(entry, question, where, f"{section}[{n}]") for n, entry in enumerate(entries))
    default = data.get("default") or {}
    if not isinstance(default, dict) or not set(default) <= set(QUESTIONS.values()):
        raise where.wrong("default", "it takes role, domain and difficulty")
    return Routing(
        rules=rules,
        profiles=_profiles(data.get("profiles") or {}, where),
        default={q: _value(q, v, where, f"default.{q}") for q, v in default.items()},
    )


@dataclass(frozen=True, slots=True)
class _Where:
    path: Path

    def wrong(self, place: str, what: str) -> ConfigError:
        at = f" at {place}" if place else ""
        return ConfigError(f"{self.path}{at}: {what}.", next_step="Its form stands in the head of config/routing.yaml.")


def _rule(entry: Any, question: str, where: _Where, place: str) -> Rule:
    if not isinstance(entry, dict):
        raise where.wrong(place, "a rule is a mapping")
    if unknown := sorted(map(str, set(entry) - _CONDITIONS - {"name", question})):
        raise where.wrong(place, f"unknown keys: {', '.join(unknown)}")
    if question not in entry:
        raise where.wrong(place, f"it decides no {question}")
    if not _CONDITIONS & set(entry):
        raise where.wrong(place, f"it has no condition ({', '.join(sorted(_CONDITIONS))})")
    longer = entry.get("longer_than")
    if longer is not None and (not isinstance(longer, int) or isinstance(longer, bool) or longer < 0):
        raise where.wrong(place, f"longer_than is {longer!r}, not a number of characters")
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise where.wrong(place, "it has no name")
    return Rule(
        name=name.strip(),
        answer=_value(question, entry[question], where, place),
        labels=frozenset(label.lower() for label in _texts(entry, "labels", where, place)),
        begins=_texts(entry, "begins", where, place),
        words=_texts(entry, "words", where, place),
        longer_than=longer,
        origin=f"{where.path}: {place}",
    )


def _profiles(data: Any, where: _Where) -> dict[str, Profile]:
    if not isinstance(data, dict):
        raise where.wrong("profiles", "it is not a mapping of names")
    found = {}
    for name, entry in data.items():
        place = f"profiles.{name}"
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,62}", name):
            raise where.wrong(place, "a profile's name takes a-z, 0-9, dot and dash")
        if not isinstance(entry, dict) or not set(entry) <= {"role", "model", "agent", "domains"}:
            raise where.wrong(place, "it takes role, model, agent and domains")
        model, agent = entry.get("model"), entry.get("agent")
        if model is not None and not isinstance(model, str):
            raise where.wrong(place, f"model is {model!r}, not an alias")
        if agent is not None and agent not in AGENTS:
            raise where.wrong(place, f"agent is {agent!r}, not one of {', '.join(AGENTS)}")
        role = _value("role", entry.get("role"), where, place)
        found[name] = Profile(name, role, model, agent, _texts(entry, "domains", where, place))
    return found


def _alternatives(words: Iterable[str]) -> str:
    """Return an expression for any of the words; white space is any, an ending ``*`` lets a word go on."""
    return "|".join(r"\s+".join(re.escape(part).replace(r"\*", r"\w*") for part in word.split()) for word in words)


def _texts(entry: Mapping[str, Any], name: str, where: _Where, place: str) -> tuple[str, ...]:
    if name not in entry:
        return ()
    values = entry[name]
    if not isinstance(values, list) or not values or not all(isinstance(v, str) and v.strip(" *") for v in values):
        raise where.wrong(place, f"{name} is not a list of texts")
    return tuple(value.strip() for value in values)


def _value(question: str, value: Any, where: _Where, place: str) -> str:
    allowed = ALLOWED.get(question)
    if allowed is not None:
        if value not in allowed:
            raise where.wrong(place, f"{question} is {value!r}, not one of {', '.join(allowed)}")
        return str(value)
    try:
        if isinstance(value, str) and slug(value) == value:
            return value
    except InvalidBeadError:
        pass
    raise where.wrong(place, f"{question} is {value!r}, not one word of a-z, 0-9, dot and dash")
