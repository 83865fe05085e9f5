"""The one place that starts git.

Two kinds of git dir are addressed: the user's repository (its own configuration counts, as far as it can't run
code) and git dirs that this package made (``isolated=True``: no configuration but the git dir's own file). In both
the environment is cleaned of every ``GIT_*``, and hooks and fsmonitor, which would run code, are off (FACTS, "Git
2.39 over a tree a stranger wrote"). Paths in arguments are literal, output is bytes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import GitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TIMEOUT = 120.0
"""Seconds that one git command may take; a checkout of a large tree gets more from its caller."""

STDERR_TAIL = 4096

MINIMUM_VERSION = (2, 38)
"""The first git that takes ``safe.directory`` from its command line."""

NO_INDEX = {"GIT_INDEX_FILE": "/nonexistent/index"}
"""Environment under which git finds an empty index."""

_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "worktree.useRelativePaths=false",  # it would write an extension into the user's configuration
    "gc.auto=0",
    "maintenance.auto=false",
    # the repository was named by the person who runs this, and nothing of its configuration is run
    "safe.directory=*",
)
_PREFIX = ("git", "--no-pager", *(part for item in _CONFIG for part in ("-c", item)))

_DROPPED = ("SSH_ASKPASS", "PAGER", "LANGUAGE", "LC_MESSAGES")
_ISOLATED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
}


@dataclass(frozen=True, slots=True)
class Completed:
    """What a git command left behind."""

    code: int
    stdout: bytes
    stderr: str


def environment(*, isolated: bool, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment git gets: the caller's without any ``GIT_*``, plus ours."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") and name not in _DROPPED}
    env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1"}
    if isolated:
        env |= _ISOLATED
    return env | dict(extra or {})


class Running:
    """A git command that was started. ``result()`` must be called; a second one can run meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes], argv: Sequence[str], stdin: bytes | None) -> None:
        self._process = process
        self._argv = tuple(argv)
        self._stdin = stdin

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process itself, for callers that stream."""
        return self._process

    def result(self, *, timeout: float = TIMEOUT, check: bool = True) -> Completed:
        """Wait for the end.

        Args:
            timeout: Seconds; after that git and its children are ended.
            check: Whether an exit code other than 0 is an error.

        Raises:
            GitError: git failed (with ``check``) or took too long.
        """
        try:
            stdout, stderr = self._process.communicate(self._stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GitError(
                f"git {_verb(self._argv)} did not end within {timeout:g} s.",
                next_step="Look whether the disk is slow or full, or the repository is being repacked; then try again.",
            ) from None
        except BaseException:  # Ctrl-C: git must not be left running in a folder that is about to be removed
            self.kill()
            raise
        text = stderr[-STDERR_TAIL:].decode(errors="replace").strip()
        if check and self._process.returncode != 0:
            raise failure(self._argv, self._process.returncode, text)
        return Completed(self._process.returncode, stdout, text)

    def kill(self) -> None:
        """End git and its children at once."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def start(
    *args: str,
    cwd: Path | None = None,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    stdin: bytes | None = None,
    pipe: bool = False,
    isolated: bool = False,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Running:
    """Start git and return at once.

    Args:
        args: The subcommand and its arguments.
        cwd: Folder to run in; the repository is looked for from here when no ``git_dir`` is given.
        git_dir: The git dir, when it must not be looked for.
        work_tree: The work tree that goes with ``git_dir``.
        stdin: Input; None is an empty one.
        pipe: Leave stdin open for the caller to write to.
        isolated: Read no configuration but the git dir's own file (and ``config``).
        config: More ``name=value`` settings.
        env: More environment.

    Raises:
        GitError: git is not installed, or ``cwd`` is not there.
    """
    argv = [*_PREFIX, *(part for item in config for part in ("-c", item))]
    if git_dir is not None:
        argv.append(f"--git-dir={git_dir}")
    if work_tree is not None:
        argv.append(f"--work-tree={work_tree}")
    argv += args
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment(isolated=isolated, extra=env),
            stdin=subprocess.PIPE if pipe or stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C at the terminal must not cut a command in the middle of its work
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        if cwd is not None and str(error.filename) == str(cwd):
            raise GitError(f"The folder {cwd} can't be entered: {error.strerror}.") from error
        raise GitError(
            f"git can't be started: {error.strerror}.", next_step="Install git 2.38 or later and put it on PATH."
        ) from error
    return Running(process, args, stdin)


def git(
    *args: str,
    cwd: Path | None = None,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    stdin: bytes | None = None,
    isolated: bool = False,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    check: bool = True,
) -> Completed:
    """Run git to its end; see ``start`` and ``Running.result`` for arguments and errors."""
    return start(
        *args,
        cwd=cwd,
        git_dir=git_dir,
        work_tree=work_tree,
        stdin=stdin,
        isolated=isolated,
        config=config,
        env=env,
    ).result(timeout=timeout, check=check)


def git_version() -> tuple[int, ...]:
    """Return the version of the git on PATH, for example ``(2, 39, 5)``; ``MINIMUM_VERSION`` is what is needed.

    Raises:
        GitError: git is not installed.
    """
    words = git("version").stdout.decode().split()
    return tuple(int(part) for part in words[2].split(".") if part.isdecimal())


def failure(argv: Sequence[str], code: int, stderr: str) -> GitError:
    """Return the error for a git command that ended with ``code``."""
    lines = [line for line in stderr.splitlines() if line.startswith(("fatal:", "error:"))] or stderr.splitlines()
    reason = lines[-1] if lines else "it gave no reason"
    return GitError(
        f"git {_verb(argv)} failed (exit {code}): {reason}",
        stderr=stderr,
        next_step="Run `git fsck` in the repository; if it finds nothing, report this with the text above.",
    )


def _verb(argv: Sequence[str]) -> str:
    return " ".join(argv[:2]) if argv[:1] == ("worktree",) else argv[0]
