"""Turns what a scenario wants done into calls of whichever tools the agent offers.

A tool is recognised by its name, its arguments by the names in its schema: agents agree on little more.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from orchestrator import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ToolCall = tuple[str, dict[str, Any]]

_WRITE = ("write_file", "write", "create_file", "file_write")
_EDIT = ("edit_file", "patch", "edit", "str_replace", "replace", "replace_in_file")
_EDITOR = ("str_replace_based_edit_tool", "str_replace_editor")
_PATCH = ("apply_patch",)
_SHELL = ("terminal", "bash", "shell", "exec_command", "shell_command", "run_shell_command", "run_command")
_SHELL_MORE = ("execute_command", "local_shell", "execute_bash", "container.exec")
_FINISH = ("done", "finish", "task_done", "attempt_completion", "complete_task", "submit")

_PATH_KEYS = ("path", "file_path", "filePath", "filepath", "filename", "file", "target_file")
_CONTENT_KEYS = ("content", "contents", "file_text", "text", "code")
_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_OLD_KEYS = ("old", "old_string", "old_str", "oldString", "search")
_NEW_KEYS = ("new", "new_string", "new_str", "newString", "replace")
_SUMMARY_KEYS = ("summary", "result", "message", "text", "output", "final_answer")
_PATCH_KEYS = ("input", "patch", "diff", "patch_text", "patchText")


class Offered:
    """The tools of one request."""

    def __init__(self, tools: Any) -> None:
        self._tools: dict[str, tuple[str, dict[str, Any]]] = {}
        for tool in tools if isinstance(tools, list) else []:
            function = tool.get("function", tool) if isinstance(tool, dict) else None
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                schema = function.get("parameters") or function.get("input_schema") or {}
                self._tools[function["name"].lower()] = (function["name"], schema if isinstance(schema, dict) else {})

    def names(self) -> list[str]:
        """Return the names of the tools, in the order offered."""
        return [name for name, _ in self._tools.values()]

    def call(self, action: Mapping[str, Any]) -> ToolCall | None:
        """Return the call that carries an action out, or None when no tool offered can."""
        ((kind, value),) = action.items()
        match kind:
            case "write":
                return self._write(value["path"], value["content"])
            case "patch":
                return self._patch(value["path"], value["old"], value["new"])
            case "run":
                return self._run(value)
            case _:
                return self._simple(_FINISH, {_SUMMARY_KEYS: value})

    def _write(self, path: str, content: str) -> ToolCall | None:
        added = "".join(f"+{line}\n" for line in content.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch\n"
        folder = shlex.quote(path.rpartition("/")[0] or ".")
        script = f"mkdir -p {folder} && printf %s {shlex.quote(content)} > {shlex.quote(path)}"
        return (
            self._simple(_WRITE, {_PATH_KEYS: path, _CONTENT_KEYS: content})
            or self._simple(_EDITOR, {("command",): "create", _PATH_KEYS: path, ("file_text",): content})
            or self._simple(_PATCH, {_PATCH_KEYS: patch})
            or self._run(script)
        )

    def _patch(self, path: str, old: str, new: str) -> ToolCall | None:
        removed = "".join(f"-{line}\n" for line in old.splitlines())
        added = "".join(f"+{line}\n" for line in new.splitlines())
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n{removed}{added}*** End Patch\n"
        program = (
            "import pathlib, sys; p = pathlib.Path(sys.argv[1]); t = p.read_text(); "
            "sys.exit('not found') if sys.argv[2] not in t else p.write_text(t.replace(sys.argv[2], sys.argv[3], 1))"
        )
        script = shlex.join(["python3", "-c", program, path, old, new])
        edit = {_PATH_KEYS: path, _OLD_KEYS: old, _NEW_KEYS: new}
        return (
            self._simple(_EDIT, edit)
            or self._simple(_EDITOR, {("command",): "str_replace", **edit})
            or self._simple(_PATCH, {_PATCH_KEYS: patch})
            or self._run(script)
        )

    def _run(self, command: str) -> ToolCall | None:
        return self._simple((*_SHELL, *_SHELL_MORE), {_COMMAND_KEYS: command})

    def _simple(self, names: Iterable[str], wanted: Mapping[tuple[str, ...], str]) -> ToolCall | None:
        """Call the first tool of these names whose schema has a place for every wanted value."""
        for name in names:
            if name not in self._tools:
                continue
            real_name, schema = self._tools[name]
            arguments = _arguments(schema, wanted)
            if arguments is not None:
                return real_name, arguments
        return None


def _arguments(schema: Mapping[str, Any], wanted: Mapping[tuple[str, ...], str]) -> dict[str, Any] | None:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return None
    arguments: dict[str, Any] = {}
    for keys, value in wanted.items():
        key = next((key for key in keys if key in properties), None)
        if key is None:
            return None
        arguments[key] = _shaped(properties[key], keys, value)
    for key in schema.get("required") or []:
        if key not in arguments and isinstance(properties.get(key), dict):
            arguments[key] = _filler(properties[key])
    return arguments


def _shaped(schema: Any, keys: tuple[str, ...], value: str) -> Any:
    if not isinstance(schema, dict):
        return value
    if schema.get("type") == "array" and keys is _COMMAND_KEYS:
        return ["bash", "-lc", value]
    absolute = "absolute" in str(schema.get("description", "")).lower()
    if keys is _PATH_KEYS and absolute and not value.startswith("/"):
        return f"{layout.WORKSPACE}/{value}"
    return value


def _filler(schema: Mapping[str, Any]) -> Any:
    """Return a harmless value for an argument that is required and that no scenario knows."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    by_type: dict[str, Any] = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}
    return by_type.get(str(schema.get("type")), "scripted rehearsal")
