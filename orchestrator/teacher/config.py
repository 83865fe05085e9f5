"""A teacher's configuration: the environment, with the container's mount points as defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import layout
from orchestrator.bookbag import Dirs
from orchestrator.errors import ConfigError
from orchestrator.review.attempts import BACKOFF, DEFAULT_ATTEMPTS
from orchestrator.review.budget import DEFAULT_BUDGET
from orchestrator.review.lenses import TEACHERS
from orchestrator.review.reviewer import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TeacherConfig:
    """What a teacher needs to know. Times in seconds, the budget in characters."""

    teacher: str
    model: str
    dirs: Dirs
    evidence: Path = Path(layout.TEACHER_EVIDENCE)
    sessions: Path = Path(layout.TEACHER_SESSIONS)
    seal_key: Path = Path(layout.TEACHER_SEAL_KEY)
    gate_socket: str = layout.GATE_SOCKET
    poll_interval: float = 5.0
    review_timeout: float = DEFAULT_TIMEOUT
    attempts: int = DEFAULT_ATTEMPTS
    backoff: float = BACKOFF
    budget: int = DEFAULT_BUDGET
    parallel: int = 4
    max_sessions: int = 10

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> TeacherConfig:
        """Read the configuration.

        Raises:
            ConfigError: a variable is missing or not valid; the message names it.
        """
        teacher = env.get("SCHOOL_TEACHER", "")
        if teacher not in TEACHERS:
            raise ConfigError(
                f"SCHOOL_TEACHER is {teacher!r}.",
                next_step=f"Set it to one of {', '.join(TEACHERS)}; `school up` does.",
            )
        model = env.get("SCHOOL_REVIEW_MODEL", "")
        if not model:
            raise ConfigError("SCHOOL_REVIEW_MODEL is not set.", next_step="Set it to a model alias of the gateway.")
        return cls(
            teacher=teacher,
            model=model,
            dirs=Dirs(
                env.get("BOOKBAG_DIR") or layout.TEACHER_BOOKBAG,
                env.get("SIGNAL_DIR") or layout.TEACHER_SIGNALS,
                env.get("LOCK_DIR") or layout.TEACHER_LOCKS,
            ),
            evidence=Path(env.get("SCHOOL_EVIDENCE_DIR") or layout.TEACHER_EVIDENCE),
            sessions=sessions_folder(env),
            seal_key=Path(env.get("SCHOOL_SEAL_KEY") or layout.TEACHER_SEAL_KEY),
            gate_socket=env.get("SCHOOL_GATE_SOCKET") or layout.GATE_SOCKET,
            poll_interval=_number(env, "DEFAULT_POLL_INTERVAL", 5.0),
            review_timeout=_number(env, "DEFAULT_REVIEW_TIMEOUT", DEFAULT_TIMEOUT),
            attempts=int(_number(env, "SCHOOL_REVIEW_ATTEMPTS", DEFAULT_ATTEMPTS)),
            backoff=_number(env, "SCHOOL_REVIEW_BACKOFF", BACKOFF),
            budget=int(_number(env, "SCHOOL_REVIEW_BUDGET", DEFAULT_BUDGET)),
            parallel=int(_number(env, "SCHOOL_REVIEW_PARALLEL", 4)),
            max_sessions=int(_number(env, "MAX_SESSION_CYCLES", 10)),
        )


def sessions_folder(env: Mapping[str, str]) -> Path:
    """Return the teacher's own folder: session, history, heartbeat."""
    return Path(env.get("SCHOOL_SESSION_DIR") or layout.TEACHER_SESSIONS)


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name) or ""
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    whole = isinstance(default, int)
    if not 0 < value < float("inf") or (whole and value < 1):
        raise ConfigError(f"{name} is {text!r}.", next_step=f"Set it to a {'whole ' if whole else ''}number above 0.")
    return value
