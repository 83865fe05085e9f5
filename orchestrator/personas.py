"""The personas: one SOUL.md per profile, which says what a role is for and where it ends (R-51, R-52).

Standard library only: read on the host and in the teachers. A persona is never read from the repository at hand. A
must-not that stands in a SOUL.md is a courtesy; what enforces it is the sandbox.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from orchestrator.errors import ConfigError
from orchestrator.resources import share

PROFILES: Final = (
    "principal",
    "teacher-cto",
    "teacher-coo",
    "student-searcher",
    "student-executor",
    "student-coder",
    "student-reviewer",
    "student-browser",
)
"""The profiles that ship."""

SOUL_FILE: Final = "SOUL.md"
SOUL_LIMIT: Final = 20_000  # bytes
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

Source = Literal["shipped", "home"]


def load_soul(name: str, *, home: str | Path | None = None, prefer_home: bool = False) -> str:
    """Return a profile's SOUL.md.

    Args:
        name: The profile, for example ``student-coder``.
        home: The school's home; by default ``SCHOOL_HOME``, if that is set.
        prefer_home: Let a home's copy stand in for a shipped one. Without it a home's copy counts only for names that
            don't ship, so that nothing is shadowed unnoticed (R-51); ``persona_source`` tells which one it is.

    Raises:
        ConfigError: there is no such profile, or its file can't be read.
    """
    path, _ = _find(name, home, prefer_home=prefer_home)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path} is not a regular file.")
            raw = file.read(SOUL_LIMIT + 1)
        if len(raw) > SOUL_LIMIT:
            raise ConfigError(f"{path} is longer than {SOUL_LIMIT} bytes.", next_step="Shorten it: a persona is short.")
        text = raw.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The persona {path} can't be read: {type(error).__name__}.") from error
    if not text:
        raise ConfigError(f"The persona {path} is empty.", next_step="Write it, or remove the file.")
    return text + "\n"


def persona_source(name: str, *, home: str | Path | None = None, prefer_home: bool = False) -> Source:
    """Return whether ``load_soul`` would give the shipped copy or the home's.

    Raises:
        ConfigError: there is no such profile.
    """
    return _find(name, home, prefer_home=prefer_home)[1]


@dataclass(frozen=True, slots=True)
class PersonaUse:
    """Which file a profile's persona comes from, why, and what is wrong with it.

    ``role`` is who uses it (empty: nobody), ``unused`` a file of the same name that is not used.
    """

    name: str
    role: str
    source: Source | Literal["none"]
    path: str
    why: str
    unused: str = ""
    problems: tuple[str, ...] = ()


def persona_uses(home: str | Path) -> list[PersonaUse]:
    """Return what each profile uses (R-51): those that ship first, then those that only the home has."""
    root = Path(home).expanduser() / "profiles"
    own: list[str] = []
    if root.is_dir():
        own = [
            path.name for path in sorted(root.iterdir()) if (path / SOUL_FILE).is_file() and path.name not in PROFILES
        ]
    return [_use(name, home) for name in (*PROFILES, *own)]


def _use(name: str, home: str | Path) -> PersonaUse:
    role = name.removeprefix("student-") if name in PROFILES else ""
    try:
        path, source = _find(name, home, prefer_home=False)
        problems = tuple(lint_soul(load_soul(name, home=home)))
    except ConfigError as error:
        return PersonaUse(name, role, "none", "", "it can't be used", problems=(error.message,))
    unused = Path(home).expanduser() / "profiles" / name / SOUL_FILE
    if source == "home":
        return PersonaUse(name, role, source, str(path), "no profile of this name ships", problems=problems)
    shadow = str(unused) if unused.is_file() else ""
    why = "it ships; the home's copy is not used" if shadow else "it ships"
    return PersonaUse(name, role, source, str(path), why, shadow, problems)


def _find(name: str, home: str | Path | None, *, prefer_home: bool) -> tuple[Path, Source]:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"Not the name of a profile: {name[:80]!r}.")
    shipped = share("config") / "profiles" / name / SOUL_FILE
    root = home if home is not None else os.environ.get("SCHOOL_HOME")
    own = Path(root).expanduser() / "profiles" / name / SOUL_FILE if root else None
    candidates: list[tuple[Path | None, Source]] = [(shipped, "shipped"), (own, "home")]
    for path, source in reversed(candidates) if prefer_home else candidates:
        if path is not None and path.is_file():
            return path, source
    raise ConfigError(
        f"There is no profile {name!r}.",
        next_step=f"Use one of {', '.join(PROFILES)}, or write $SCHOOL_HOME/profiles/{name}/{SOUL_FILE}.",
    )


# -- wording ---------------------------------------------------------------------------------------------------------
# Agents look through a persona for wording that attacks use, and put [BLOCKED] in its place; the role is gone then, and
# nobody says so. These are the families of such wording, drawn wider than any one agent's list.

_GAP: Final = r"(?:\W+\w+){0,8}\W+"
_SUSPECT: Final[tuple[tuple[str, str], ...]] = (
    (
        "asks to drop instructions",
        rf"\b(?:ignor|disregard|forget|overrid)\w*{_GAP}(?:instruction|rule|guideline|prompt)",
    ),
    ("speaks of overriding a system prompt", r"\bsystem\W+prompt\b"),
    ("claims that there are no limits", rf"\b(?:no|without|any){_GAP}?(?:restriction|limitation|filter|safety)"),
    ("gives a new identity", rf"\b(?:you{_GAP}?are{_GAP}?now|pretend\w*|name\W+yourself|act\W+as\W+(?:if|though))\b"),
    ("hides something from a person", rf"\b(?:not|never|n't){_GAP}?(?:tell|inform|reveal){_GAP}?(?:user|person|human)"),
    ("claims an update", r"\byou\W+have\W+been\W+(?:\w+\W+)?(?:updated|upgraded|patched)"),
    ("calls home", r"\b(?:heartbeat|beacon|check\W?in)\W+(?:to|with)\b|\bregister\W+(?:as\W+)?(?:a\W+)?node\b"),
    ("takes tasks from elsewhere", r"\bpull\w*\W+(?:down\W+)?(?:new\W+)?task|\bconnect\W+to\W+the\W+network\b"),
    ("forces an action", r"\bmust\W+(?:\w+\W+){0,3}(?:register|connect|report|beacon)\b"),
    ("speaks of command and control", r"\bcommand\W+and\W+control\b|\bc2\b"),
    ("avoids traces", rf"\bnever{_GAP}?(?:creat|writ)\w*{_GAP}?disk\b|\bone\W?liners?\b"),
    ("unsets an agent's environment", r"\bunset\s+\w+"),
    (
        "reads or sends secrets",
        r"\b(?:curl|wget)\b[^\n]*\$|\bcat\s[^\n]*(?:\.env|credential|\.netrc|\.pgpass|\.npmrc|\.pypirc)",
    ),
    ("names a place of secrets", r"authorized_keys|\.ssh\b|\.hermes/"),
    ("translates and runs", rf"\btranslat\w*{_GAP}?into{_GAP}?(?:execute|run|eval)\b"),
    ("holds markup", r"<!--|<\s*(?:div|script|iframe)\b"),
)
_SUSPECT_PATTERNS: Final = tuple((what, re.compile(pattern, re.IGNORECASE)) for what, pattern in _SUSPECT)


def lint_soul(text: str) -> list[str]:
    """Return what in a persona an agent's filter may block, as sentences with the line's number; empty when nothing."""
    problems = [
        f"line {_line(text, at)}: holds the hidden character U+{ord(char):04X}"
        for at, char in enumerate(text)
        if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Co", "Cn", "Zl", "Zp"}
    ]
    folded = unicodedata.normalize("NFKC", text)
    for what, pattern in _SUSPECT_PATTERNS:
        problems += [f"line {_line(folded, m.start())}: {what}: {m.group(0)!r}" for m in pattern.finditer(folded)]
    return problems


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
