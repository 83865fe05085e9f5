"""The light agent's tools: what they do, and what they never let through."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from orchestrator.agents.files import Files, ToolError
from orchestrator.agents.shell import HEAD, TAIL, run_shell, tool_environment
from orchestrator.agents.tools import Toolbox


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def call(root):
    box = Toolbox(str(root), ends_at=time.monotonic() + 60)

    def run(name, **arguments):
        return box.call(name, json.dumps(arguments))

    run.box = box
    return run


def gone(pid):
    """Whether a process has ended; one that nobody collects counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(condition, seconds=10):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


# files


def test_a_file_is_written_read_and_edited(call, root):
    assert call("write_file", path="a/b.txt", content="one\ntwo\n").ok
    assert call("read_file", path="a/b.txt").text == "     1\tone\n     2\ttwo"
    assert call("edit_file", path="a/b.txt", old="two", new="2").ok
    assert (root / "a/b.txt").read_text() == "one\n2\n"


def test_an_edit_must_be_unambiguous(call, root):
    (root / "f").write_text("x x")
    assert "2 times" in call("edit_file", path="f", old="x", new="y").text
    assert "does not occur" in call("edit_file", path="f", old="z", new="y").text
    assert call("edit_file", path="f", old="x", new="y", all=True).ok
    assert (root / "f").read_text() == "y y"


def test_an_edit_keeps_bytes_that_are_not_text(call, root):
    (root / "f").write_bytes(b"\xff\xfe old \r\n")
    assert call("edit_file", path="f", old="old", new="new").ok
    assert (root / "f").read_bytes() == b"\xff\xfe new \r\n"


def test_a_long_file_is_read_in_parts(call, root):
    (root / "f").write_text("".join(f"{n}\n" for n in range(1, 1001)))
    text = call("read_file", path="f", offset=10, limit=2).text
    assert text == "    10\t10\n    11\t11\n[1000 lines in all; go on with offset 12]"


def test_binary_files_folders_and_pipes_are_named(call, root):
    (root / "b").write_bytes(b"\0\1")
    os.mkfifo(root / "pipe")
    assert "binary" in call("read_file", path="b").text
    assert "not a file" in call("read_file", path=".").text
    assert "not a file" in call("read_file", path="pipe").text
    assert "is a folder" in call("write_file", path=".", content="").text


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "link", "folder/new", "loop/x", "a\0b"])
def test_no_path_leaves_the_workspace(root, tmp_path, path):
    (tmp_path / "out").write_text("secret")
    (root / "link").symlink_to(tmp_path / "out")
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    files = Files(str(root))
    for attempt in (lambda: files.read(path), lambda: files.write(path, "x"), lambda: files.edit(path, "s", "x")):
        with pytest.raises(ToolError):
            attempt()
    assert (tmp_path / "out").read_text() == "secret"
    assert not (tmp_path / "new").exists()


def test_links_inside_the_workspace_work(call, root):
    (root / "real").write_text("x")
    (root / "link").symlink_to("real")
    assert call("write_file", path="link", content="y").ok
    assert (root / "real").read_text() == "y"
    assert (root / "link").is_symlink()


def test_listing_leaves_out_what_nobody_reads(call, root):
    for name in ("src/a.py", ".git/config", "node_modules/x/y.js"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    assert call("list_files").text == "src/a.py"


def test_search_finds_lines_and_takes_odd_patterns(call, root):
    (root / "a.py").write_text("def f():\n    return 'it''s'\n")
    assert "return" in call("search_files", pattern="ret.rn").text
    assert call("search_files", pattern="nothing'; touch hacked; '").text == "[no match]"
    assert call("search_files", pattern="-e").ok
    assert not (root / "hacked").exists()


# a model's mistakes


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("fly", "{}", "there is no tool 'fly'"),
        ("bash", "{", "not valid JSON"),
        ("bash", "[]", "must be a JSON object"),
        ("bash", "{}", "command is missing"),
        ("bash", '{"command": 1}', "must be of type string"),
        ("bash", '{"command": "x", "timeout": true}', "must be of type number"),
        ("bash", '{"command": "x", "cwd": "/"}', "unknown arguments: cwd"),
        ("write_file", '{"path": "a\\ud800", "content": ""}', "error"),
    ],
)
def test_a_mistake_of_the_model_is_answered_not_raised(call, name, raw, said):
    result = call.box.call(name, raw)
    assert not result.ok
    assert said in result.text


# bash


def test_bash_tells_output_and_exit_code(call):
    result = call("bash", command="echo out; echo err >&2; exit 3")
    assert not result.ok
    assert result.text == "out\nerr\n[exit code 3]"


def test_long_output_keeps_both_ends(root):
    result = run_shell("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last", folder=str(root), timeout=60)
    assert result.output.startswith("first\nxxx")
    assert result.output.endswith("xlast\n")
    assert "bytes left out" in result.output
    assert len(result.output) < HEAD + TAIL + 100


def test_a_command_past_its_time_is_killed_with_its_children(call, root):
    result = call("bash", command="sleep 1000 & echo $! > pid; echo begun; wait", timeout=1)
    assert not result.ok
    assert result.text == "begun\n[killed after 1 s]"
    assert eventually(lambda: gone(int((root / "pid").read_text())))


def test_a_background_process_does_not_hold_the_tool(call, root):
    began = time.monotonic()
    result = call("bash", command="sleep 100 & echo $! > pid; echo begun")
    assert result.ok
    assert time.monotonic() - began < 30
    os.kill(int((root / "pid").read_text()), 9)


def test_no_command_outlasts_the_run(root):
    box = Toolbox(str(root), ends_at=time.monotonic() + 0.5)
    assert "killed" in box.call("bash", '{"command": "sleep 100"}').text


def test_input_is_empty(call):
    assert call("bash", command="cat").text == "[exit code 0]"


def test_keys_and_the_schools_own_variables_stay_with_the_agent(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SCHOOL_BEAD"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment = tool_environment()
    assert not [name for name in environment if name.startswith(("OPENAI_", "ANTHROPIC_", "SCHOOL_"))]
    assert environment["LANG"] == "C.UTF-8"
