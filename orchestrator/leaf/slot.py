"""The folders of one leaf on the host, below ``<home>/school/leaves/<bead>/``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator import layout
from orchestrator.sandbox.spec import account_files

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.home import Home


@dataclass(frozen=True, slots=True)
class Slot:
    """A leaf's folders. Inbox and account files belong to the host's user; the outbox to the leaf's uid."""

    home: Home
    folder: Path

    @classmethod
    def make(cls, home: Home, folder: Path) -> Slot:
        """Make the folders; the parent is made too.

        Raises:
            FileExistsError: the slot exists already.
        """
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        slot = cls(home, folder)
        slot.inbox.mkdir(mode=0o755)
        slot.outbox.mkdir(mode=0o700)
        home.hand_over(slot.outbox)
        passwd, group = account_files(home)
        for path, text in ((slot.passwd, passwd), (slot.group, group)):
            path.write_text(text, encoding="ascii")
            path.chmod(0o644)
        return slot

    @property
    def inbox(self) -> Path:
        """Brief, persona and instructions; read-only inside."""
        return self.folder / "inbox"

    @property
    def outbox(self) -> Path:
        """What the student hands in; untrusted."""
        return self.folder / "outbox"

    @property
    def passwd(self) -> Path:
        """Mounted over ``/etc/passwd``."""
        return self.folder / "passwd"

    @property
    def group(self) -> Path:
        """Mounted over ``/etc/group``."""
        return self.folder / "group"

    def put(self, name: str, text: str) -> None:
        """Write a file of the inbox."""
        path = self.inbox / name
        path.write_text(text, encoding="utf-8", errors="replace")
        path.chmod(0o644)

    def fill_inbox(self, brief: dict[str, Any], *, soul: str, instructions: str) -> None:
        """Write the brief, the persona and, when the repository has one, its AGENTS.md as of base_sha."""
        self.put(layout.BRIEF_FILE, json.dumps(brief, ensure_ascii=False, indent=2) + "\n")
        self.put(layout.SOUL_FILE, soul)
        if instructions:
            self.put(layout.INSTRUCTIONS_FILE, instructions)


def write_in_worktree(worktree: Path, relative: str, text: str, owner: tuple[int, int] | None) -> None:
    """Write a file below the worktree without following a link that the tree may hold on the way.

    Raises:
        OSError: a component of the path is a link or not a folder.
    """
    *folders, name = relative.split("/")
    directory = os.open(worktree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for part in folders:
            made = False
            try:
                os.mkdir(part, 0o755, dir_fd=directory)
                made = True
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
            directory = inner
            if made and owner is not None:
                os.fchown(directory, *owner)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o644, dir_fd=directory)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
    finally:
        os.close(directory)
