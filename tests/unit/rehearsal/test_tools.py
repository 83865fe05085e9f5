"""Abstract actions become calls of whichever tools an agent offers."""

from __future__ import annotations

import subprocess

import pytest

from orchestrator.rehearsal.tools import Offered


def tool(name, required=(), **properties):
    schema = {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in properties.items()}
    parameters = {"type": "object", "properties": schema, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


# names and arguments as the agents declare them
HERMES = [
    tool("read_file", path="string"),
    tool("write_file", path="string", content="string", cross_profile="boolean"),
    tool(
        "patch",
        required=["mode"],
        mode={"type": "string", "default": "replace"},
        path="string",
        old_string="string",
        new_string="string",
        patch="string",
    ),
    tool("terminal", command="string", background="boolean"),
]
LIGHT = [
    tool("bash", command="string", timeout="number"),
    tool("write_file", path="string", content="string"),
    tool("edit_file", path="string", old="string", new="string"),
    tool("done", required=["summary"], summary="string", success="boolean"),
]
CLAUDE = [
    tool("Bash", required=["command"], command="string", description="string"),
    tool("Write", file_path={"type": "string", "description": "The absolute path to the file"}, content="string"),
    tool(
        "Edit",
        file_path={"type": "string", "description": "The absolute path"},
        old_string="string",
        new_string="string",
    ),
]
CODEX = [tool("shell", command={"type": "array", "items": {"type": "string"}}), tool("apply_patch", input="string")]
EDITOR = [
    tool("str_replace_editor", command="string", path="string", file_text="string", old_str="string", new_str="string")
]
SHELL = [tool("exec_command", required=["cmd", "why"], cmd="string", why="string")]

WRITE = {"write": {"path": "a/b.txt", "content": "one\ntwo\n"}}
PATCH = {"patch": {"path": "a.py", "old": "x = 1", "new": "x = 2"}}
RUN = {"run": "make test"}
V4A_ADD = "*** Begin Patch\n*** Add File: a/b.txt\n+one\n+two\n*** End Patch\n"
V4A_EDIT = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch\n"


@pytest.mark.parametrize(
    ("tools", "action", "expected"),
    [
        (HERMES, WRITE, ("write_file", {"path": "a/b.txt", "content": "one\ntwo\n"})),
        (HERMES, PATCH, ("patch", {"mode": "replace", "path": "a.py", "old_string": "x = 1", "new_string": "x = 2"})),
        (HERMES, RUN, ("terminal", {"command": "make test"})),
        (LIGHT, PATCH, ("edit_file", {"path": "a.py", "old": "x = 1", "new": "x = 2"})),
        (LIGHT, {"finish": "ready"}, ("done", {"summary": "ready"})),
        (CLAUDE, WRITE, ("Write", {"file_path": "/workspace/a/b.txt", "content": "one\ntwo\n"})),
        (CLAUDE, PATCH, ("Edit", {"file_path": "/workspace/a.py", "old_string": "x = 1", "new_string": "x = 2"})),
        (CODEX, WRITE, ("apply_patch", {"input": V4A_ADD})),
        (CODEX, PATCH, ("apply_patch", {"input": V4A_EDIT})),
        (CODEX, RUN, ("shell", {"command": ["bash", "-lc", "make test"]})),
        (EDITOR, WRITE, ("str_replace_editor", {"command": "create", "path": "a/b.txt", "file_text": "one\ntwo\n"})),
        (
            EDITOR,
            PATCH,
            ("str_replace_editor", {"command": "str_replace", "path": "a.py", "old_str": "x = 1", "new_str": "x = 2"}),
        ),
        (EDITOR, RUN, None),
        (SHELL, RUN, ("exec_command", {"cmd": "make test", "why": "scripted rehearsal"})),
        (HERMES, {"finish": "ready"}, None),
        ([], RUN, None),
        (None, RUN, None),
    ],
)
def test_an_action_speaks_with_the_tools_offered(tools, action, expected):
    assert Offered(tools).call(action) == expected


def test_with_a_shell_alone_files_are_written_and_edited_by_it(tmp_path):
    offered = Offered(SHELL)
    awkward = {"path": "a b/c'd.txt", "content": "it's $HOME\n\\n %s\n"}
    for action in ({"write": awkward}, {"patch": {"path": awkward["path"], "old": "it's", "new": "it isn't"}}):
        _, arguments = offered.call(action)
        subprocess.run(["bash", "-c", arguments["cmd"]], cwd=tmp_path, check=True)
    assert (tmp_path / awkward["path"]).read_text() == "it isn't $HOME\n\\n %s\n"
