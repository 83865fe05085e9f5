"""The light agent's tools as the model sees them: names, schemas, and a call that never raises for its mistakes."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.agents.files import DEFAULT_LINES, Files, ToolError
from orchestrator.agents.shell import run_shell

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_TIMEOUT = 120.0
MAX_TIMEOUT = 1800.0
TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


@dataclass(frozen=True)
class Done:
    """The model called ``done``."""

    summary: str
    success: bool


@dataclass(frozen=True)
class ToolResult:
    """What a tool answers; ``done`` is set when the model says that it has finished."""

    ok: bool
    text: str
    done: Done | None = None


@dataclass(frozen=True)
class Tool:
    """One tool: parameters as name -> (JSON type, required, description)."""

    name: str
    description: str
    parameters: dict[str, tuple[str, bool, str]]
    run: Callable[..., ToolResult]

    def schema(self) -> dict[str, Any]:
        """The chat-completions form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": {
                        name: {"type": kind, "description": text} for name, (kind, _, text) in self.parameters.items()
                    },
                    "required": [name for name, (_, required, _) in self.parameters.items() if required],
                    "additionalProperties": False,
                },
            },
        }

    def arguments(self, raw: str) -> dict[str, Any]:
        """Parse and check what the model wrote.

        Raises:
            ToolError: Not JSON, not an object, a parameter missing, unknown or of another type.
        """
        try:
            given = json.loads(raw or "{}")
        except ValueError as error:
            raise ToolError(f"the arguments are not valid JSON ({error}); send them again") from error
        if not isinstance(given, dict):
            raise ToolError("the arguments must be a JSON object")
        unknown = [name for name in given if name not in self.parameters]
        if unknown:
            raise ToolError(f"unknown arguments: {', '.join(unknown)}; known: {', '.join(self.parameters)}")
        for name, (kind, required, _) in self.parameters.items():
            if required and name not in given:
                raise ToolError(f"the argument {name} is missing")
            value = given.get(name)
            wrong_bool = isinstance(value, bool) and kind != "boolean"
            if name in given and (not isinstance(value, TYPES[kind]) or wrong_bool):
                raise ToolError(f"the argument {name} must be of type {kind}")
        return given


class Toolbox:
    """All tools over one workspace.

    Args:
        workspace: The folder that file tools are confined to and commands start in.
        ends_at: Monotonic time that no command may run past.
    """

    def __init__(self, workspace: str, *, ends_at: float) -> None:
        self._workspace = workspace
        self._ends_at = ends_at
        self._files = Files(workspace)
        self._tools = {tool.name: tool for tool in self._make()}

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """What the model is offered."""
        return [tool.schema() for tool in self._tools.values()]

    def call(self, name: str, raw_arguments: str) -> ToolResult:
        """Run one tool; whatever the model got wrong comes back as a text for it."""
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(ok=False, text=f"there is no tool {name!r}; there are: {', '.join(self._tools)}")
        try:
            return tool.run(**tool.arguments(raw_arguments))
        except ToolError as error:
            return ToolResult(ok=False, text=f"error: {error}")
        except (OSError, ValueError) as error:  # a full disk, a path too long, a lone surrogate
            return ToolResult(ok=False, text=f"error: {error}")

    def _make(self) -> list[Tool]:
        path = ("string", True, "relative to the workspace")
        return [
            Tool(
                "bash",
                "Run a shell command in the workspace and get its output and exit code. Each call is a new shell. "
                "Send a background process's output to a file.",
                {
                    "command": ("string", True, "the command"),
                    "timeout": ("number", False, f"seconds, {DEFAULT_TIMEOUT:.0f} by default"),
                },
                self._bash,
            ),
            Tool(
                "read_file",
                "Read a text file with line numbers.",
                {
                    "path": path,
                    "offset": ("integer", False, "first line, from 1"),
                    "limit": ("integer", False, f"number of lines, {DEFAULT_LINES} by default"),
                },
                lambda **given: ToolResult(ok=True, text=self._files.read(**given)),
            ),
            Tool(
                "write_file",
                "Make or replace a file.",
                {"path": path, "content": ("string", True, "the whole content")},
                lambda **given: ToolResult(ok=True, text=self._files.write(**given)),
            ),
            Tool(
                "edit_file",
                "Replace a text that occurs exactly once in a file.",
                {
                    "path": path,
                    "old": ("string", True, "the text to replace, exactly"),
                    "new": ("string", True, "what stands there afterwards"),
                    "all": ("boolean", False, "replace every occurrence"),
                },
                self._edit,
            ),
            Tool(
                "list_files",
                "List the files below a folder.",
                {"path": ("string", False, "a folder, the workspace by default")},
                lambda path=".": ToolResult(ok=True, text=self._files.listing(path)),
            ),
            Tool(
                "search_files",
                "Search file contents with an extended regular expression; answers file:line:text.",
                {
                    "pattern": ("string", True, "the expression"),
                    "path": ("string", False, "a file or folder, the workspace by default"),
                },
                self._search,
            ),
            Tool(
                "done",
                "Say that the task is finished. Call it once, last and alone.",
                {
                    "summary": ("string", True, "what you did and what is left, for the reviewers"),
                    "success": ("boolean", False, "false when you could not do the task"),
                },
                lambda summary, success=True: ToolResult(ok=True, text="ok", done=Done(summary, success)),
            ),
        ]

    def _bash(self, command: str, timeout: float = DEFAULT_TIMEOUT) -> ToolResult:
        left = self._ends_at - time.monotonic()
        limit = min(max(timeout, 1.0), MAX_TIMEOUT, max(left, 0.1))
        result = run_shell(command, folder=self._workspace, timeout=limit)
        output = result.output.rstrip("\n")
        if result.exit_code is None:
            return ToolResult(ok=False, text=f"{output}\n[killed after {limit:.0f} s]".lstrip("\n"))
        return ToolResult(ok=result.exit_code == 0, text=f"{output}\n[exit code {result.exit_code}]".lstrip("\n"))

    def _edit(self, path: str, old: str, new: str, **rest: bool) -> ToolResult:
        return ToolResult(ok=True, text=self._files.edit(path, old, new, every=rest.get("all", False)))

    def _search(self, pattern: str, path: str = ".") -> ToolResult:
        where = shlex.quote(str(self._files.resolve(path)))
        wanted = shlex.quote(pattern)
        # grep is on every image; ripgrep, where it is, honours .gitignore
        command = (
            f"if command -v rg >/dev/null; then rg -n --no-heading -m 50 -e {wanted} -- {where}; "
            f"else grep -rnIE -m 50 --exclude-dir=.git -e {wanted} -- {where}; fi"
        )
        result = run_shell(command, folder=self._workspace, timeout=60.0)
        if result.exit_code == 1 and not result.output.strip():
            return ToolResult(ok=True, text="[no match]")
        return ToolResult(ok=result.exit_code == 0, text=result.output.rstrip("\n") or "[search failed]")
