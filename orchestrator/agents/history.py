"""The light agent's conversation, kept short enough for the model by giving up what is oldest first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.agents.model import Reply

DEFAULT_BUDGET = 320_000  # characters, about 80,000 tokens
KEEP_RECENT = 8  # messages at the end that are never touched
STUB = "[removed to save space; call the tool again if you need it]"
GAP = "[earlier steps were removed to save space; look at the workspace to see what is done]"


class History:
    """Messages in chat-completions form. The first two (system, task) always stay."""

    def __init__(self, system: str, task: str, *, budget: int = DEFAULT_BUDGET) -> None:
        self._head: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task},
        ]
        self._rest: list[dict[str, Any]] = []
        self._budget = budget

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is sent to the model."""
        return self._head + self._rest

    @property
    def size(self) -> int:
        """Characters in all."""
        return sum(_size(message) for message in self.messages)

    def add_reply(self, reply: Reply) -> None:
        """Record the model's answer; arguments that are not JSON as ``{}``: providers refuse to read them back."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _valid(call.arguments)},
                }
                for call in reply.calls
            ]
        elif not reply.text:
            message["content"] = "(empty)"
        self._rest.append(message)

    def add_result(self, call_id: str, text: str) -> None:
        """Record a tool's answer."""
        self._rest.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def add_user(self, text: str) -> None:
        """Say something to the model."""
        self._rest.append({"role": "user", "content": text})

    def fit(self) -> bool:
        """Bring the history under its budget; true when something was given up."""
        return self._shrink_to(self._budget)

    def halve(self) -> bool:
        """Lower the budget to half of the present size; true when that gave something up."""
        self._budget = self.size // 2
        return self._shrink_to(self._budget)

    def _shrink_to(self, budget: int) -> bool:
        if self.size <= budget:
            return False
        changed = self._stub_results(budget)
        # whole steps, oldest first; a tool result must never be left without the call it answers
        while self.size > budget and len(self._rest) > KEEP_RECENT:
            del self._rest[0]
            while self._rest and self._rest[0]["role"] == "tool":
                del self._rest[0]
            changed = True
        if changed and self._rest and self._rest[0].get("content") != GAP and self._rest[0]["role"] != "user":
            self._rest.insert(0, {"role": "user", "content": GAP})
        return self._stub_results(budget, keep=1) or changed

    def _stub_results(self, budget: int, keep: int = KEEP_RECENT) -> bool:
        changed = False
        for message in self._rest[: max(0, len(self._rest) - keep)]:
            if self.size <= budget:
                break
            if message["role"] == "tool" and len(message["content"]) > len(STUB):
                message["content"] = STUB
                changed = True
        return changed


def _valid(arguments: str) -> str:
    try:
        return arguments if isinstance(json.loads(arguments), dict) else "{}"
    except ValueError:
        return "{}"


def _size(message: dict[str, Any]) -> int:
    calls = message.get("tool_calls") or []
    return len(message.get("content") or "") + sum(len(call["function"]["arguments"]) + 60 for call in calls) + 20
