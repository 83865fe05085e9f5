"""Writes an answer in the chat completions format, whole or as a stream of chunks."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from orchestrator.rehearsal.conversation import Conversation, tokens
from orchestrator.rehearsal.tools import Offered, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.rehearsal.scenarios import Reply

MARK = "[scripted rehearsal]"
MODEL = "rehearsal"
_PIECE = 24  # characters of one chunk of a stream
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: text, tool calls, or both."""

    text: str
    calls: tuple[tuple[str, str], ...]  # name, arguments as JSON text
    usage: dict[str, int]
    id: str = field(default_factory=lambda: f"chatcmpl-rehearsal-{next(_numbers)}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def finish_reason(self) -> str:
        """Why the answer ends."""
        return "tool_calls" if self.calls else "stop"


def answer(reply: Reply, conversation: Conversation, tools: Any) -> Answer:
    """Return what a reply comes to with the tools that are offered."""
    texts = [f"{MARK} {reply.text}"] if reply.text else []
    calls: list[ToolCall] = []
    offered = Offered(tools)
    for action in reply.do:
        call = offered.call(action)
        if call is not None:
            calls.append(call)
        elif "finish" in action:
            texts.append(f"{MARK} {action['finish']}")
        else:
            texts.append(f"{MARK} No tool offered can do this: {json.dumps(action)}")
    if reply.review is not None:
        texts = [json.dumps(_review(reply.review), ensure_ascii=False, indent=1)]
    arguments = [(name, json.dumps(values, ensure_ascii=False)) for name, values in calls]
    if reply.malformed == "arguments":
        broken = arguments or [(next(iter(offered.names()), "none"), '{"path": "a"}')]
        arguments = [(name, text[:-1] + ', "') for name, text in broken]
    text = "" if reply.empty else "\n".join(texts)
    size = len(text) + sum(len(name) + len(values) for name, values in arguments)
    completion = max(1, tokens(size))
    usage = {
        "prompt_tokens": conversation.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": conversation.prompt_tokens + completion,
    }
    return Answer(text, tuple(arguments), usage)


def _review(review: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a review; its summary always says what it is."""
    summary = str(review.get("summary", ""))
    return {
        "verdict": review.get("verdict", "PASS"),
        "confidence": review.get("confidence", 0.5),
        "summary": f"{MARK} {summary}".strip(),
        "ac_met": review.get("ac_met", []),
        "findings": review.get("findings", []),
    }


def _tool_calls(said: Answer) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{said.id[9:]}_{number}", "type": "function", "function": {"name": name, "arguments": values}}
        for number, (name, values) in enumerate(said.calls)
    ]


def whole(said: Answer) -> dict[str, Any]:
    """Return the answer as one object."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text or (None if said.calls else "")}
    if said.calls:
        message["tool_calls"] = _tool_calls(said)
    return {
        "id": said.id,
        "object": "chat.completion",
        "created": said.created,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish_reason}],
        "usage": said.usage,
    }


def chunks(said: Answer, *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the answer as the chunks of a stream."""
    head = {"id": said.id, "object": "chat.completion.chunk", "created": said.created, "model": MODEL}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for start in range(0, len(said.text), _PIECE):
        yield chunk({"content": said.text[start : start + _PIECE]})
    for number, call in enumerate(_tool_calls(said)):
        function = call["function"]
        opening = {"index": number, **call, "function": {"name": function["name"], "arguments": ""}}
        yield chunk({"tool_calls": [opening]})
        values = function["arguments"]
        for start in range(0, len(values), _PIECE * 8):
            piece = {"index": number, "function": {"arguments": values[start : start + _PIECE * 8]}}
            yield chunk({"tool_calls": [piece]})
    yield chunk({}, said.finish_reason)
    if include_usage:
        yield {**head, "choices": [], "usage": said.usage}
