"""What a person asked for: one task on one repository, with limits. Checked here as far as words go."""

from __future__ import annotations

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
        for name, value in (
            ("--timeout", self.timeout),
            ("--max-cost", self.max_cost),
            ("--max-calls", self.max_calls),
            ("--max-tokens", self.max_tokens),
            ("--cpus", self.cpus),
        ):
            if value is not None and not value > 0:
                raise UsageError(f"{name} is {value}; it must be above 0.", next_step=f"Give {name} a positive number.")
        if self.memory is not None and size_bytes(self.memory) < 64 << 20:
            raise UsageError(f"--memory is {self.memory}; a leaf needs at least 64m.", next_step="Give it more memory.")

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
