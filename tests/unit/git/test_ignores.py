"""The compiled list must answer as git does over the real .gitignore files."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.git.ignores import compile_excludes

if TYPE_CHECKING:
    from pathlib import Path


def ignored(git_dir: Path, tree: Path, paths: list[str]) -> set[str]:
    argv = ["git", f"--git-dir={git_dir}", f"--work-tree={tree}", "check-ignore", "--no-index", "-z", "--stdin"]
    data = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
    answer = subprocess.run(argv, cwd=tree, input=data, capture_output=True, check=False)
    assert answer.returncode in {0, 1}, answer.stderr
    return {os.fsdecode(path)[2:] for path in answer.stdout.split(b"\0")[:-1]}


def agree(tmp_path: Path, files: dict[str, str], paths: list[str]) -> None:
    name = str(len(list(tmp_path.iterdir())))
    real, git_dir, empty = tmp_path / name / "real", tmp_path / name / "git", tmp_path / name / "empty"
    for folder in (real, empty):
        folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--bare", str(git_dir)], check=True)
    for folder, content in files.items():
        (real / folder).mkdir(parents=True, exist_ok=True)
        (real / folder / ".gitignore").write_bytes(content.encode())
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "exclude").write_bytes(b"")
    expected = ignored(git_dir, real, paths)
    compiled = compile_excludes((folder.encode(), content.encode()) for folder, content in files.items())
    (git_dir / "info" / "exclude").write_bytes(compiled)
    assert ignored(git_dir, empty, paths) == expected, compiled


PATHS = [
    *("x", "a/x", "a/b/x", "b/x", "a/b", "a/x.log", "a/b/x.log", "x.log", "keep.log", "a/keep.log", "a/b/keep.log"),
    *("a/out/x", "out/x", "a/b/out/x", "a/c d/x", "a/c d /x", "#x", "a/#x", "!x", "a/!x", "a/b/x ", "a/[x]", "a/*"),
]


@pytest.mark.parametrize(
    "files",
    [
        {"": "*.log\n!keep.log\nout/\n"},
        {"": "*.log\n", "a": "!x.log\n/out\n", "a/b": "x.log\nx\\ \n"},
        {"a": "b/x\n\\#x\n\\!x\n# comment\n\n/\n//\n", "a/b": "!x\n"},
        {"a/c d": "x\n", "a": "*\n!keep.log\n!b/\n"},
        {"": "/a/*\n!/a/b\r\n", "a": "**/x\n**\n!keep.log   \n"},
        {"a/[x]y*": "x\n", "": "\ufeffx\n"},
    ],
)
def test_a_compiled_list_ignores_what_git_ignores(tmp_path, files):
    agree(tmp_path, files, [*PATHS, "a/[x]y*/x", "a/xyz/x"])


atoms = st.sampled_from(["x", "*", "*.log", "keep.log", "out", "b", "a", "**", "?", "[ab]", "c d", "\\#x", "\\ "])
pattern = st.builds(
    lambda neg, lead, parts, tail: neg + lead + "/".join(parts) + tail,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(atoms, min_size=1, max_size=3),
    st.sampled_from(["", "/", " ", "\\ ", "/**", "\r"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["", "a", "a/b", "a/c d"]), st.lists(pattern, max_size=4).map("\n".join), max_size=3
    )
)
def test_any_patterns_compile_to_what_git_makes_of_them(tmp_path, files):
    agree(tmp_path, files, PATHS)
