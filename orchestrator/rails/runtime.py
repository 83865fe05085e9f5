"""Orca, an outside runtime, through its command line (R-103). That there is none is normal.

Orca's worktrees are its own: it makes them, lists them, and removes them. What it can't remove stays where it is; the
school deletes no folder that it did not make (R-28). The runtime holds no judgment (R-100).

Untested against a real Orca, which is a desktop program. Written from its documented commands and tested against a
stand-in. On Linux the program is ``orca-ide``: ``orca`` is the screen reader of the desktop there, and starts to speak.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import GitError, RuntimeRailError, UsageError
from orchestrator.git.dispose import dispose_worktree
from orchestrator.git.repository import open_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TIMEOUT = 180.0  # seconds for one call: making a worktree checks a repository out
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class OutsideWorktree:
    """A worktree that Orca made."""

    id: str
    path: str
    branch: str
    name: str


def find_orca(env: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> tuple[str, ...] | None:
    """Return how Orca is called, or None when it is not here.

    ``ORCA_CLI_COMMAND`` is Orca's own way of saying it. A plain ``orca`` is never tried on Linux.
    """
    env = os.environ if env is None else env
    if named := env.get("ORCA_CLI_COMMAND", "").strip():
        argv = tuple(shlex.split(named))
        return argv if shutil.which(argv[0], path=env.get("PATH")) else None
    for name in ("orca-ide",) if platform.startswith("linux") else ("orca", "orca-ide"):
        if found := shutil.which(name, path=env.get("PATH")):
            return (found,)
    return None


class OrcaRuntime:
    """Orca. Methods raise RuntimeRailError when it refuses, fails or does not answer, unless they say otherwise."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        lock_dir: Path,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is called yet.

        Args:
            command: How Orca is called.
            lock_dir: Where locks of repositories are kept.
            timeout: Seconds for one call.
            sleep: Waits between two attempts.
        """
        self._command = tuple(command)
        self._lock_dir = lock_dir
        self._timeout = timeout
        self._sleep = sleep

    def running(self) -> bool:
        """Return whether Orca's runtime answers. Never raises."""
        try:
            runtime = self._call("status").get("runtime")
        except RuntimeRailError:
            return False
        return isinstance(runtime, dict) and runtime.get("reachable") is True

    def ensure_repo(self, repo: Path) -> str:
        """Return Orca's id of a repository, registered once."""
        wanted = os.path.realpath(repo)
        for attempt in range(2):
            for entry in _list(self._call("repo", "list"), "repos"):
                if os.path.realpath(str(entry.get("path", ""))) == wanted and entry.get("id"):
                    return str(entry["id"])
            if attempt == 0:
                self._call("repo", "add", "--path", str(repo))
        raise RuntimeRailError(f"Orca registered {repo} and does not list it.")

    def worktrees(self) -> list[OutsideWorktree]:
        """Return the worktrees that Orca knows."""
        return [_worktree(entry) for entry in _list(self._call("worktree", "list"), "worktrees")]

    def ensure_worktree(self, repo: Path, name: str, *, base: str = "") -> OutsideWorktree:
        """Return the worktree of this name; it is looked for before one is made, so that no ``-2`` appears (R-29).

        Raises:
            UsageError: the name is none.
        """
        if not name or name.startswith("-") or "/" in name:
            raise UsageError(f"Not a worktree's name: {name[:80]!r}.")
        repo_id = self.ensure_repo(repo)
        found = [worktree for worktree in self.worktrees() if worktree.name == name]
        if found:
            return found[0]
        options = ["--base-branch", base] if base else []
        made = self._call(
            "worktree", "create", "--repo", f"id:{repo_id}", "--name", name, "--no-parent", "--setup", "skip", *options
        )
        worktree = made.get("worktree")
        if not isinstance(worktree, dict):
            raise RuntimeRailError("Orca made a worktree and did not say which.")
        return _worktree(worktree)

    def remove_worktree(self, worktree: OutsideWorktree, repo: Path) -> bool:
        """Remove a worktree through Orca, and look whether it is gone; through git where Orca does not answer at all.

        Returns:
            Whether it is gone. False after two failures: it is then left as it is (R-28). Never raises.
        """
        if not self.running():
            return self._through_git(worktree, repo)
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(float(attempt))
            with contextlib.suppress(RuntimeRailError):  # what counts is what is seen next
                self._call("worktree", "rm", "--worktree", f"id:{worktree.id}", "--force")
            try:
                listed = any(other.id == worktree.id for other in self.worktrees())
            except RuntimeRailError:
                continue
            if not listed and not os.path.lexists(worktree.path):
                return True
        return False

    def close_terminal(self, handle: str) -> None:
        """Close a terminal."""
        self._call("terminal", "close", "--terminal", _plain(handle))

    def create_automation(self, name: str, *, trigger: str, prompt: str, provider: str, repo: Path) -> str:
        """Let Orca's scheduler run a prompt (R-102).

        Args:
            name: Its name; one of this name is found instead of made again.
            trigger: ``hourly``, ``daily``, … or a cron expression.
            prompt: What the agent is told.
            provider: The agent, for example ``hermes``.
            repo: The repository.

        Returns:
            The automation's id.
        """
        for entry in _list(self._call("automations", "list"), "automations"):
            if entry.get("name") == name and entry.get("id"):
                return str(entry["id"])
        made = self._call(
            "automations",
            "create",
            "--name",
            name,
            "--trigger",
            trigger,
            "--prompt",
            prompt,
            "--provider",
            provider,
            "--repo",
            f"id:{self.ensure_repo(repo)}",
        )
        inner = made.get("automation", made)
        if not isinstance(inner, dict) or not inner.get("id"):
            raise RuntimeRailError("Orca made an automation and did not say which.")
        return str(inner["id"])

    def _through_git(self, worktree: OutsideWorktree, repo: Path) -> bool:
        try:
            common_dir = open_repository(repo).common_dir
        except (GitError, UsageError):
            return False
        return dispose_worktree(common_dir, Path(worktree.path), lock_dir=self._lock_dir, outside=True)

    def _call(self, *arguments: str) -> dict[str, Any]:
        what = " ".join(arguments[:2])
        try:
            done = subprocess.run(
                [*self._command, *arguments, "--json"],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self._timeout,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeRailError(f"orca {what} did not end within {self._timeout:g} s.") from None
        except OSError as error:
            raise RuntimeRailError(f"Orca can't be started: {error}.") from error
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or done.returncode != 0 or answer.get("ok") is not True:
            problem = answer.get("error") if isinstance(answer, dict) else None
            text = problem.get("message") if isinstance(problem, dict) else problem
            raise RuntimeRailError(
                f"orca {what}: {text or (done.stderr or done.stdout).strip()[-300:] or f'exit code {done.returncode}'}",
                next_step="See whether Orca runs: orca status (orca-ide status on Linux)",
            )
        result = answer.get("result")
        return result if isinstance(result, dict) else {}


def _list(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = result.get(name)
    if not isinstance(found, list):
        raise RuntimeRailError(f"Orca's answer holds no list of {name}.")
    return [entry for entry in found if isinstance(entry, dict)]


def _worktree(entry: dict[str, Any]) -> OutsideWorktree:
    if not isinstance(entry.get("id"), str) or not isinstance(entry.get("path"), str):
        raise RuntimeRailError("Orca named a worktree without id or path.")
    branch = str(entry.get("branch") or "").removeprefix("refs/heads/")
    return OutsideWorktree(
        entry["id"], entry["path"], branch, str(entry.get("displayName") or Path(entry["path"]).name)
    )


def _plain(text: str) -> str:
    if not text or text.startswith("-"):
        raise UsageError(f"Not a terminal's handle: {text[:80]!r}.")
    return text
