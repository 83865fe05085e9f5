"""Reads and checks scenario files. Their form is described at the top of config/rehearsals/default.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import yaml

from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

DEFAULT_ORDER = 50
MALFORMED = ("body", "arguments", "stream")
ACTIONS = ("write", "run", "patch", "finish")
_VARIABLE = re.compile(r"\$\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class HttpError:
    """An error instead of an answer. ``times``: only that many calls of one bead, then the next scenario counts."""

    status: str
    message: str = "a scripted error"
    retry_after: str | None = None
    times: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model. Texts may hold ``${name}`` of a named group of the scenario's task expression."""

    text: str = ""
    do: tuple[Mapping[str, Any], ...] = ()
    review: Mapping[str, Any] | None = None
    delay: str = "0"  # seconds
    error: HttpError | None = None
    malformed: str | None = None
    empty: bool = False
    next_scenario: bool = False  # after the delay the next scenario that matches answers


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who it is for, and what is answered turn by turn; the last reply repeats."""

    name: str
    replies: tuple[Reply, ...]
    roles: tuple[str, ...] = ()
    task: re.Pattern[str] | None = None
    prompt: re.Pattern[str] | None = None
    model: str | None = None
    turn: int | None = None
    source: str = ""

    def fits(self, *, role: str, task: str, prompt: str, model: str, turn: int) -> dict[str, str] | None:
        """Return the variables of the match, or None when this scenario is not meant."""
        if self.roles and not any(fnmatchcase(role, pattern) for pattern in self.roles):
            return None
        if self.model is not None and not fnmatchcase(model, self.model):
            return None
        if self.turn is not None and self.turn != turn:
            return None
        variables: dict[str, str] = {}
        for expression, text in ((self.task, task), (self.prompt, prompt)):
            if expression is None:
                continue
            found = expression.search(text)
            if found is None:
                return None
            variables |= {name: value for name, value in found.groupdict().items() if value is not None}
        return variables


def fill(value: Any, variables: Mapping[str, str]) -> Any:
    """Put variables into every text of a reply; an unknown one (an optional group that was absent) is empty."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: variables.get(found[1], ""), value)
    if isinstance(value, dict):
        return {key: fill(item, variables) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(item, variables) for item in value]
    return value


@dataclass(slots=True)
class _Reader:
    """Reads one mapping; remembers where it is, for the messages, and refuses names that it does not know."""

    data: Any
    where: str
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.data, dict):
            raise self.wrong("must be a mapping")

    def wrong(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self.where}: {what}",
            next_step="The form of a scenario file is described at the top of config/rehearsals/default.yaml.",
        )

    def get(self, key: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        self.known.add(key)
        value = self.data.get(key, default)
        if value is not default and (not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool)):
            raise self.wrong(f"{key} has a value of the wrong kind: {value!r}")
        return value

    def scalar(self, key: str, default: str | None = None) -> str | None:
        value = self.get(key, (str, int, float), default)
        return None if value is None else str(value)

    def expression(self, key: str) -> re.Pattern[str] | None:
        text = self.get(key, str)
        if text is None:
            return None
        try:
            return re.compile(text, re.IGNORECASE | re.MULTILINE)
        except re.error as error:
            raise self.wrong(f"{key} is not a regular expression: {error}") from error

    def done(self) -> None:
        unknown = sorted(str(key) for key in self.data if key not in self.known)
        if unknown:
            raise self.wrong(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(self.known))}")


def _reply(data: Any, where: str) -> Reply:
    reader = _Reader(data, where)
    actions = reader.get("do", list, [])
    for number, action in enumerate(actions, 1):
        _check_action(action, f"{where}, action {number}")
    malformed = reader.get("malformed", str)
    if malformed is not None and malformed not in MALFORMED:
        raise reader.wrong(f"malformed must be one of {', '.join(MALFORMED)}")
    error = reader.get("error", dict)
    reply = Reply(
        text=reader.get("text", str, ""),
        do=tuple(actions),
        review=reader.get("review", dict),
        delay=reader.scalar("delay") or "0",
        error=None if error is None else _error(error, f"{where}, error"),
        malformed=malformed,
        empty=reader.get("empty", bool, default=False),
        next_scenario=reader.get("next_scenario", bool, default=False),
    )
    reader.done()
    says = (reply.text, reply.do, reply.review, reply.error, reply.malformed, reply.empty, reply.next_scenario)
    if not any(says):
        raise reader.wrong("says nothing; use `empty: true` when that is meant")
    return reply


def _error(data: Any, where: str) -> HttpError:
    reader = _Reader(data, where)
    status = reader.scalar("status")
    if status is None:
        raise reader.wrong("status is missing")
    error = HttpError(
        status=status,
        message=reader.get("message", str, "a scripted error"),
        retry_after=reader.scalar("retry_after"),
        times=reader.scalar("times"),
    )
    reader.done()
    return error


def _check_action(data: Any, where: str) -> None:
    reader = _Reader(data, where)
    if len(data) != 1 or next(iter(data)) not in ACTIONS:
        raise reader.wrong(f"must be one of {', '.join(ACTIONS)}")
    ((kind, value),) = data.items()
    needed = {"write": ("path", "content"), "patch": ("path", "old", "new")}.get(kind)
    if needed is None:
        reader.get(kind, str)
        return
    inner = _Reader(value, f"{where}, {kind}")
    for key in needed:
        if inner.get(key, str) is None:
            raise inner.wrong(f"{key} is missing")
    inner.done()


def _scenario(data: Any, source: str, number: int) -> Scenario:
    name = data.get("name") if isinstance(data, dict) else None
    reader = _Reader(data, f"{source}, scenario {name or number}")
    reader.get("name", str)
    match = _Reader(reader.get("match", dict, {}), f"{reader.where}, match")
    replies = reader.get("replies", list, [])
    if not replies:
        raise reader.wrong("replies is missing or empty")
    scenario = Scenario(
        name=name or f"{source}#{number}",
        replies=tuple(_reply(reply, f"{reader.where}, reply {position}") for position, reply in enumerate(replies, 1)),
        roles=tuple(match.get("roles", list, [])),
        task=match.expression("task"),
        prompt=match.expression("prompt"),
        model=match.get("model", str),
        turn=match.get("turn", int),
        source=source,
    )
    match.done()
    reader.done()
    return scenario


def load(path: Path) -> tuple[int, list[Scenario]]:
    """Return a file's order (lower is asked first) and its scenarios.

    Raises:
        ConfigError: the message says which file, which scenario and what is wrong.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not YAML: {error}", next_step=f"Correct {path.name}.") from error
    reader = _Reader(data, path.name)
    if reader.get("version", int) != 1:
        raise reader.wrong("version must be 1")
    order = reader.get("order", int, DEFAULT_ORDER)
    entries = reader.get("scenarios", list, [])
    reader.done()
    return order, [_scenario(entry, path.name, number) for number, entry in enumerate(entries, 1)]


class Library:
    """All scenario files of some folders, read anew when one changes. Earlier folders are asked first."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._stamp: object = None
        self._scenarios: list[Scenario] = []
        self.problems: list[str] = []

    def scenarios(self) -> list[Scenario]:
        """Return the scenarios in the order in which they are asked; ``problems`` tells of files left out."""
        files = [sorted(folder.glob("*.yaml")) if folder.is_dir() else [] for folder in self._folders]
        stamp = [(path, path.stat().st_mtime_ns, path.stat().st_size) for group in files for path in group]
        if stamp != self._stamp:
            self._stamp = stamp
            self._scenarios, self.problems = [], []
            for group in files:
                self._scenarios += self._load(group)
        return self._scenarios

    def _load(self, group: Iterable[Path]) -> list[Scenario]:
        loaded = []
        for path in group:
            try:
                loaded.append(load(path))
            except ConfigError as error:
                self.problems.append(error.message)
        loaded.sort(key=lambda entry: entry[0])
        return [scenario for _, scenarios in loaded for scenario in scenarios]
