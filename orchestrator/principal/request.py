"""What a person asked for: one task on one repository, with limits. Checked here as far as words go."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.leaf.brief import ROLES
from orchestrator.settings import size_bytes

if TYPE_CHECKING:
    from orchestrator.settings import Settings

DIFFICULTIES = ("easy", "medium", "hard", "diploma")
AGENTS = ("auto", "light", "hermes", "command")
MAX_TASK = 200_000
MAX_TIMEOUT = 7 * 24 * 3600
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A task and how it is to be done. None means the setting's default."""

    repo: str
    task: str
    role: str = "coder"
    domain: str = "general"
    difficulty: str = "medium"
    model: str | None = None
    agent: str = "auto"
    command: str = ""
    verify: str | None = None
    base: str | None = None
    timeout: int | None = None
    max_cost: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    memory: str | None = None
    cpus: float | None = None
    image: str | None = None
    review: str = "async"  # or "sync"
    keep: bool = False
    bead: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    profile: str = ""  # whose score it counts for; "" is student-<role>
    routed: str = ""  # what the director decided, in words
    task_id: str = ""  # of the task tracker, when the bead was made for one of its tasks

    @property
    def profile_name(self) -> str:
        """The student profile that is scored (R-41)."""
        return self.profile or f"student-{self.role}"

    def check(self) -> None:
        """Refuse what can't be carried out.

        Raises:
            UsageError: names the option, its value and what it takes.
        """
        one_of("--role", self.role, ROLES)
        one_of("--difficulty", self.difficulty, (*DIFFICULTIES, "blocker"))
        one_of("--agent", self.agent, AGENTS)
        if not self.task.strip():
            raise UsageError(
                "There is no task.",
                next_step='Give it as an argument, with --task-file FILE, or on stdin: school spawn --repo . "…"',
            )
        if len(self.task) > MAX_TASK:
            raise UsageError(
                f"The task has {len(self.task)} characters; at most {MAX_TASK} fit.", next_step="Shorten it."
            )
        if self.agent == "command" and not self.command.strip():
            raise UsageError("--agent command needs a command.", next_step="Add --command 'your-agent --flags'.")
        if self.command and self.agent != "command":
            raise UsageError("--command goes with --agent command.", next_step="Add --agent command.")
        if "\0" in self.task:
            raise UsageError("The task holds a NUL character.", next_step="Give it as text; is the file binary?")
        for name, value, most in (
            ("--timeout", self.timeout, MAX_TIMEOUT),
            ("--max-cost", self.max_cost, 1_000_000),
            ("--max-calls", self.max_calls, 10_000_000),
            ("--max-tokens", self.max_tokens, 10**12),
            ("--cpus", self.cpus, 4096),
        ):
            if value is not None and not 0 < value <= most:
                raise UsageError(f"{name} is {value}.", next_step=f"Give {name} a number above 0 and up to {most}.")
        if self.memory is not None and size_bytes(self.memory, what="--memory") < 64 << 20:
            raise UsageError(f"--memory is {self.memory}; a leaf needs at least 64m.", next_step="Give it more memory.")
        if self.image is not None and not IMAGE.fullmatch(self.image):
            raise UsageError(f"--image is {self.image!r}, which no image can be named.", next_step="Write NAME[:TAG].")

    def check_against(self, *, cpus: int, memory: int) -> None:
        """Refuse more than the engine's machine has.

        Args:
            cpus: What the engine has.
            memory: What the engine has, in bytes.

        Raises:
            UsageError: names the option, its value and what there is.
        """
        if self.cpus is not None and self.cpus > cpus:
            raise UsageError(f"--cpus is {self.cpus}; the engine has {cpus}.", next_step=f"Give at most {cpus}.")
        if self.memory is not None and size_bytes(self.memory, what="--memory") > memory:
            there = f"{memory / (1 << 30):.1f}g"
            raise UsageError(f"--memory is {self.memory}; the engine has {there}.", next_step=f"Give at most {there}.")

    def to_json(self) -> dict[str, Any]:
        """Return the request for the ledger and for a detached principal."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SpawnRequest:
        """Return the request that ``to_json`` wrote."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a student may spend. Time in seconds, cost in USD."""

    wall: int
    calls: int
    tokens: int
    cost: float

    @classmethod
    def of(cls, request: SpawnRequest, settings: Settings) -> Budget:
        """Return the limits in force for a request."""
        return cls(
            wall=request.timeout or settings.student_timeout,
            calls=request.max_calls or settings.student_max_calls,
            tokens=request.max_tokens or settings.student_max_tokens,
            cost=request.max_cost or settings.student_max_cost,
        )

    def to_gate(self) -> dict[str, float | None]:
        """Return them as the gate's control channel takes them."""
        return {"calls": self.calls, "tokens": self.tokens, "cost_usd": self.cost, "parallel": 8}


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value of an option that is none of its words.

    Raises:
        UsageError: names the option, the value and the words.
    """
    if value not in allowed:
        raise UsageError(f"{option} is {value!r}.", next_step=f"Use one of: {', '.join(allowed)}.")
