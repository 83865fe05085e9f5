"""Agent ``hermes``: Hermes Agent embedded, run as a script by the Python of the Hermes layer.

PID 1 starts it by exec with the event pipe in ``SCHOOL_EVENTS_FD``. Hermes reaches the model through the relay; its
home is made anew in the leaf's own tmpfs, so that nothing of it is kept and nothing of it asks the network.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # -I leaves the script's folder out, and the layer's Python does not know ours
    sys.path.append(__file__.rsplit("/", 3)[0])

from orchestrator.agents.brief import (
    Brief,
    BriefError,
    header,
    instructions_block,
    read_brief,
    situation,
    task_message,
)
from orchestrator.agents.events import Emitter
from orchestrator.agents.model import DENIED, GATE_STATUS
from orchestrator.agents.places import Places
from orchestrator.layout import PLACEHOLDER_KEY, RELAY_HOST

if TYPE_CHECKING:
    from orchestrator.agents.loop import Ending

MAX_TOKENS = 16_384  # of one reply; Hermes' own default of 65,536 is more than many models take
CONTEXT_LENGTH = 128_000  # tokens; aliases hide the real model, and Hermes would ask the network for its size
API_RETRIES = 6
GOOD_EXITS = ("text_response(", "fallback_prior_turn_content")


def main() -> int:
    """Run the brief through Hermes; the last event says how it ended. Returns only when there is nothing to run."""
    from orchestrator.agents import process

    process.become_untraceable()  # exec made this process traceable again
    descriptor = int(os.environ.pop("SCHOOL_EVENTS_FD"))
    os.set_inheritable(descriptor, False)
    emit = Emitter(descriptor)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what Hermes prints for people, the events say already
    places = Places()
    try:
        brief = read_brief(places)
    except BriefError as error:
        emit.finish("failed", str(error))
        return 0
    run = Run(places, brief, emit)
    status, reason, output = run.work()
    if status not in ("completed", "interrupted"):
        emit.error(reason)
    emit.finish(status, reason, output)
    os._exit(0)  # Hermes' own clean-up takes a second, and the leaf is thrown away


def lean_config(places: Places, brief: Brief) -> dict[str, Any]:
    """Hermes' settings: our gate as its only provider, and nothing that waits for a person or the network."""
    return {
        "model": {
            "provider": "custom",
            "base_url": base_url(places),
            "api_key": PLACEHOLDER_KEY,
            "default": brief.model,
            "context_length": CONTEXT_LENGTH,
            "max_tokens": MAX_TOKENS,
        },
        "agent": {
            "max_turns": brief.turns,
            "api_max_retries": API_RETRIES,
            "verify_on_stop": False,
            "coding_context": "off",
            "environment_probe": False,
        },
        "terminal": {"backend": "local", "cwd": places.workspace},
        "approvals": {"mode": "off"},  # nobody is there to ask; the leaf is the boundary
        "memory": {"memory_enabled": False, "user_profile_enabled": False},
        "security": {"tirith_enabled": False, "allow_lazy_installs": False},
        "lsp": {"enabled": False},
        "curator": {"enabled": False},
        "model_catalog": {"enabled": False},
        "auxiliary": {"title_generation": {"enabled": False}},
    }


def base_url(places: Places) -> str:
    """The relay, as an OpenAI base URL."""
    return f"http://{RELAY_HOST}:{places.relay_port}/v1"


def make_home(places: Places, brief: Brief) -> None:
    """Write Hermes' home and point the environment at it. Hermes reads both when it is imported."""
    home = Path(places.home) / ".hermes"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps(lean_config(places, brief)), encoding="utf-8")  # JSON is YAML
    if brief.soul.strip():
        (home / "SOUL.md").write_text(brief.soul, encoding="utf-8")
    os.environ.update(
        HERMES_HOME=str(home),
        HERMES_DISABLE_LAZY_INSTALLS="1",
        TERMINAL_ENV="local",
        TERMINAL_CWD=places.workspace,
    )


class Refusals:
    """Remembers the last answer of the gate that was an error: Hermes reports only its text."""

    def __init__(self) -> None:
        self.last: tuple[int, str, str] | None = None  # status, the gate's own code, message

    def listen(self) -> None:
        """Look at each HTTP error that the OpenAI client raises."""
        import openai  # type: ignore[import-not-found] # of the Hermes layer

        original = openai.APIStatusError.__init__

        def remember(error: Any, message: str, *, response: Any, body: Any) -> None:
            original(error, message, response=response, body=body)
            fields = body if isinstance(body, dict) else {}
            ours = fields.get("type") == "school_gate"
            code = str(fields.get("code") or "") if ours else ""
            self.last = (response.status_code, code, str(fields.get("message") or message)[:300])

        openai.APIStatusError.__init__ = remember

    def outcome(self) -> tuple[str, str] | None:
        """Status and reason when the last error was a refusal for good."""
        if self.last is None:
            return None
        status, code, message = self.last
        if code in GATE_STATUS:
            return GATE_STATUS[code], message
        if status in DENIED:
            return "model_denied", f"HTTP {status}: {message}"
        return None


class Run:
    """One conversation with Hermes."""

    def __init__(self, places: Places, brief: Brief, emit: Emitter) -> None:
        self._places = places
        self._brief = brief
        self._emit = emit
        self._agent: Any = None
        self._ended_by: str | None = None
        self._began: dict[str, float] = {}
        self._counted = [0, 0, 0]
        self._refusals = Refusals()
        self._lock = threading.Lock()

    def work(self) -> Ending:
        """Import Hermes, run the task, and judge its result."""
        signal.signal(signal.SIGTERM, lambda *_: self._interrupt("interrupted"))
        timer = threading.Timer(self._brief.wall_s, self._interrupt, ("timed_out",))
        timer.daemon = True
        timer.start()
        make_home(self._places, self._brief)
        import importlib.metadata

        try:
            from run_agent import AIAgent  # type: ignore[import-not-found]
        except ImportError as error:
            return "failed", f"the Hermes layer is not usable here ({error}); use --agent light", ""
        self._refusals.listen()
        self._emit.started("hermes", importlib.metadata.version("hermes-agent"), self._brief.model)
        self._agent = AIAgent(
            base_url=base_url(self._places),
            api_key=PLACEHOLDER_KEY,
            provider="custom",
            api_mode="chat_completions",
            model=self._brief.model,
            max_tokens=MAX_TOKENS,
            max_iterations=self._brief.turns,
            tool_delay=0.0,
            enabled_toolsets=["terminal", "file"],
            quiet_mode=True,
            platform="cli",
            skip_memory=True,
            skip_context_files=True,  # the repository's instructions come from the base commit, not from the worktree
            load_soul_identity=bool(self._brief.soul.strip()),
            ephemeral_system_prompt=self._system(),
            tool_start_callback=self._tool_started,
            tool_complete_callback=self._tool_completed,
            step_callback=self._step,
            interim_assistant_callback=self._said,
        )
        if self._ended_by is not None:
            return self._ending({})
        task = f"{header(self._brief)}\n\n{task_message(self._brief)}"
        result = self._agent.run_conversation(task)
        timer.cancel()
        return self._ending(result if isinstance(result, dict) else {})

    def _system(self) -> str:
        parts = [situation(self._places), instructions_block(self._brief)]
        return "\n\n".join(part for part in parts if part)

    def _ending(self, result: dict[str, Any]) -> Ending:
        """Turn Hermes' result into ours: complete only when it says so and gave a text of its own."""
        self._count(int(result.get("api_calls") or 0))
        output = str(result.get("final_response") or "")
        if self._ended_by is not None:
            reason = "the time limit was reached" if self._ended_by == "timed_out" else "SIGTERM"
            return self._ended_by, reason, output
        exit_reason = str(result.get("turn_exit_reason") or "")
        good = bool(result.get("completed")) and not result.get("failed") and exit_reason.startswith(GOOD_EXITS)
        if good and output.strip():
            self._emit.message(output)
            return "completed", "", output
        refused = self._refusals.outcome()
        if refused is not None:
            return (*refused, output)
        why = result.get("error") or result.get("failure_reason") or exit_reason or "no answer"
        return "failed", f"Hermes: {why}", output

    def _interrupt(self, cause: str) -> None:
        self._ended_by = self._ended_by or cause
        if self._agent is not None:
            self._agent.interrupt()

    def _step(self, number: int, _previous: Any = None) -> None:
        self._count(number - 1)
        self._emit.turn(number)

    def _said(self, text: str, **_: Any) -> None:
        self._emit.message(text)

    def _tool_started(self, call_id: str, name: str, arguments: Any) -> None:
        with self._lock:
            self._began[call_id] = time.monotonic()
        self._emit.tool_call(call_id, name, json.dumps(arguments, default=str))

    def _tool_completed(self, call_id: str, name: str, _arguments: Any, result: Any) -> None:
        with self._lock:
            began = self._began.pop(call_id, time.monotonic())
        text = result if isinstance(result, str) else json.dumps(result, default=str)
        took = int((time.monotonic() - began) * 1000)
        self._emit.tool_result(call_id, name, ok=_succeeded(text), ms=took, preview=text)

    def _count(self, calls: int) -> None:
        """Report what was used since the last report."""
        now = [
            calls,
            int(getattr(self._agent, "session_prompt_tokens", 0) or 0),
            int(getattr(self._agent, "session_completion_tokens", 0) or 0),
        ]
        added = [max(0, new - old) for new, old in zip(now, self._counted, strict=True)]
        if any(added):
            self._counted = [max(new, old) for new, old in zip(now, self._counted, strict=True)]
            self._emit.usage(calls=added[0], prompt_tokens=added[1], completion_tokens=added[2])


def _succeeded(text: str) -> bool:
    """Hermes' tools answer JSON; an error or an exit code other than 0 is a failure."""
    try:
        answer = json.loads(text)
    except ValueError:
        return True
    return not (isinstance(answer, dict) and (answer.get("error") or answer.get("exit_code") not in (None, 0)))


if __name__ == "__main__":
    sys.exit(main())
