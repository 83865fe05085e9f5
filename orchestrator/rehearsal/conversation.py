"""What a request tells: role, bead, task and turn, read from the messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_ROLE = re.compile(r"^School-Role:[ \t]*(\S+)", re.MULTILINE)
_BEAD = re.compile(r"^School-Bead:[ \t]*(\S+)", re.MULTILINE)
_TASK_FENCE = re.compile(r"^<<<DATA (\S+) task\b[^\n]*\n(.*?)\n>>>END \1$", re.MULTILINE | re.DOTALL)
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Conversation:
    """One request as a scenario sees it."""

    role: str
    bead: str
    task: str
    prompt: str
    model: str
    turn: int
    prompt_tokens: int


def read(body: dict[str, Any]) -> Conversation:
    """Read a chat completions request.

    The role is the first ``School-Role:`` line of any message. The task is what a teacher's prompt fences as the
    task, so that a marker in somebody's diff means nothing; for a student it is all that the user said.

    Raises:
        ValueError: the messages are not a list of objects.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("messages must be a list of objects")
    texts = [(str(message.get("role")), _text(message.get("content"))) for message in messages]
    everything = "\n".join(text for _, text in texts)
    role, bead = _ROLE.search(everything), _BEAD.search(everything)
    asked = "\n".join(text for who, text in texts if who == "user")
    fenced = _TASK_FENCE.search(asked)
    calls = sum(len(str(message.get("tool_calls") or "")) for message in messages)
    return Conversation(
        role=role[1] if role else "",
        bead=bead[1] if bead else "",
        task=fenced[2] if fenced else asked,
        prompt=asked,
        model=str(body.get("model") or ""),
        turn=sum(who == "assistant" for who, _ in texts),
        prompt_tokens=tokens(len(everything) + calls),
    )


def tokens(characters: int) -> int:
    """Return the tokens that a text of this length counts for: made up, but the same every time."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""
