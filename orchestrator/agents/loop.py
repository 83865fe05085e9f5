"""Agent light's tool loop: model, tools, model, tools, until something ends it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.agents.brief import Brief, header, instructions_block, situation, task_message
from orchestrator.agents.history import History
from orchestrator.agents.model import ContextOverflowError, Model, ModelError, Reply
from orchestrator.agents.tools import Done, Toolbox

if TYPE_CHECKING:
    from orchestrator.agents.events import Emitter
    from orchestrator.agents.places import Places

Ending = tuple[str, str, str]
"""Status, reason and final text."""

MAX_EMPTY = 2  # replies in a row with neither text nor tool call
MAX_OVERFLOWS = 3
HOW_TO_FINISH = (
    "When the task is finished, call done with a summary for the reviewers, who see your diff and that summary."
)


def system_prompt(places: Places, brief: Brief) -> str:
    """Who the student is, where it works, and what the repository asks of agents."""
    parts = [header(brief), brief.soul.strip(), situation(places), HOW_TO_FINISH, instructions_block(brief)]
    return "\n\n".join(part for part in parts if part)


class Loop:
    """Model, tools, model, tools."""

    def __init__(self, places: Places, brief: Brief, emit: Emitter, *, model: Model | None = None) -> None:
        self._brief = brief
        self._emit = emit
        self._ends_at = time.monotonic() + brief.wall_s
        self._tools = Toolbox(places.workspace, ends_at=self._ends_at)
        self._model = model or Model(places.gate_socket, brief.model, ends_at=self._ends_at, warn=emit.warning)
        self._history = History(system_prompt(places, brief), task_message(brief))
        self._overflows = 0
        self._empty = 0
        self.last_text = ""

    def run(self) -> Ending:
        """Turn after turn until something ends it."""
        try:
            for turn in range(1, self._brief.turns + 1):
                if time.monotonic() >= self._ends_at:
                    return "timed_out", "the time limit was reached", self.last_text
                self._emit.turn(turn)
                ending = self._act_on(self._ask())
                if ending is not None:
                    return ending
        except ModelError as error:
            return error.status, error.reason, self.last_text
        return "failed", f"the limit of {self._brief.turns} turns was reached", self.last_text

    def _act_on(self, reply: Reply) -> Ending | None:
        """Run a reply's tools, or take its text as the last word."""
        self._history.add_reply(reply)
        if reply.text.strip():
            self.last_text = reply.text
            self._emit.message(reply.text)
        if reply.calls:
            self._empty = 0
            return self._use_tools(reply)
        if reply.finish_reason == "length":
            self._history.add_user("Your reply was cut off. Go on, in smaller steps, with tool calls.")
            return None
        if reply.finish_reason == "content_filter":
            return "failed", "the provider's content filter ended the reply", self.last_text
        if reply.text.strip():
            return "completed", "", reply.text
        self._empty += 1
        if self._empty > MAX_EMPTY:
            return "failed", f"the model answered nothing, {self._empty} times in a row", self.last_text
        self._history.add_user("Your reply was empty. Use a tool, or call done.")
        return None

    def _ask(self) -> Reply:
        if self._history.fit():
            self._emit.warning("the oldest steps were removed from the conversation")
        while True:
            try:
                reply = self._model.complete(self._history.messages, self._tools.schemas)
            except ContextOverflowError as error:
                self._overflows += 1
                if self._overflows > MAX_OVERFLOWS or not self._history.halve():
                    raise ModelError("failed", f"the task does not fit the model's context: {error}") from error
                self._emit.warning(f"the conversation was too long for the model and was shortened ({error})")
                continue
            self._emit.usage(calls=1, prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens)
            return reply

    def _use_tools(self, reply: Reply) -> Ending | None:
        """Run the reply's calls in order; what stands after ``done`` still runs."""
        done: Done | None = None
        for call in reply.calls:
            self._emit.tool_call(call.id, call.name, call.arguments)
            began = time.monotonic()
            result = self._tools.call(call.name, call.arguments)
            took = int((time.monotonic() - began) * 1000)
            self._emit.tool_result(call.id, call.name, ok=result.ok, ms=took, preview=result.text)
            self._history.add_result(call.id, result.text)
            done = done or result.done
        return None if done is None else _finished(done)


def _finished(done: Done) -> Ending:
    if done.success:
        return "completed", "", done.summary
    return "failed", "the student says that it could not do the task", done.summary
