"""The school's home on the host: which folder holds what, made with the right modes. Host only.

``SCHOOL_HOME`` (default ``~/.hermes``) may be shared with Hermes itself, so everything that is only ours lies
under ``school/``. Folders are 0700, key files 0600 (DESIGN, "The home").
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ConfigError

UNPRIVILEGED_ID = 10001
"""uid and gid that containers run as when the host's user is root."""


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one home. Nothing is made until ``ensure()``."""

    root: Path
    bookbags: Path
    signals: Path
    locks: Path

    @property
    def school(self) -> Path:
        """What belongs to the school alone."""
        return self.root / "school"

    @property
    def ledger(self) -> Path:
        """The ledger, a SQLite file."""
        return self.school / "ledger.db"

    @property
    def leases(self) -> Path:
        """Kernel locks: one per bead, slot and standing role."""
        return self.school / "leases"

    @property
    def leaves(self) -> Path:
        """One folder per living leaf."""
        return self.school / "leaves"

    @property
    def evidence(self) -> Path:
        """What the teachers read, one folder per bead."""
        return self.school / "evidence"

    @property
    def archive(self) -> Path:
        """Bookbags of disposed beads (R-9)."""
        return self.school / "archive"

    @property
    def sessions(self) -> Path:
        """The teachers' own state, one folder each."""
        return self.school / "sessions"

    @property
    def gate(self) -> Path:
        """The gate's zone: control socket, sockets, grants, log."""
        return self.school / "gate"

    @property
    def keys(self) -> Path:
        """Key files, 0600."""
        return self.school / "keys"

    @property
    def logs(self) -> Path:
        """The principal's log files and those of detached processes."""
        return self.school / "logs"

    @property
    def rehearsals(self) -> Path:
        """The home's own rehearsal scenarios."""
        return self.school / "rehearsals"

    @property
    def library_log(self) -> Path:
        """R-34."""
        return self.school / "library-log.yaml"

    @property
    def id(self) -> str:
        """The home's random id, 12 hex digits: the value of the label ``school.home``.

        Raises:
            FileNotFoundError: ``ensure()`` was never called here.
        """
        return (self.school / "home-id").read_text(encoding="ascii").strip()

    @property
    def uid(self) -> int:
        """The uid that containers of this home run as: the host user's, or a fixed one for root."""
        return os.getuid() or UNPRIVILEGED_ID

    @property
    def gid(self) -> int:
        """The gid that goes with ``uid``."""
        return UNPRIVILEGED_ID if os.getuid() == 0 else os.getgid()

    def ensure(self) -> Home:
        """Make the folders and the home's id; safe to call from several processes at once.

        Raises:
            ConfigError: the folder can't be used as a home.
        """
        try:
            self._make()
        except OSError as error:
            raise ConfigError(
                f"The school's home {self.root} can't be used: {error.strerror} ({error.filename}).",
                next_step="Set SCHOOL_HOME to a folder that this user can write.",
            ) from error
        return self

    def _make(self) -> None:
        shared = (self.bookbags, self.signals, self.locks, self.evidence, self.sessions)
        own = (self.leases, self.leaves, self.archive, self.gate, self.keys, self.logs, self.rehearsals)
        for folder in (self.root, self.school, *own, *shared):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (*shared, self.gate, self.rehearsals):
            self.hand_over(folder)
        target = self.school / "home-id"
        if not target.exists():
            temporary = self.school / f".home-id-{secrets.token_hex(4)}"
            temporary.write_text(secrets.token_hex(6) + "\n", encoding="ascii")
            with contextlib.suppress(FileExistsError):  # another process was first: its id stands
                os.link(temporary, target)
            temporary.unlink()

    def hand_over(self, path: Path) -> None:
        """Give a path to the uid of the containers, when the host's user is root (it is theirs already otherwise)."""
        if os.getuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def secret(self, name: str, *, nbytes: int = 32) -> Path:
        """Return the key file ``keys/<name>``, made with random hex at its first use, 0600."""
        path = self.keys / name
        if not path.exists():
            temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(nbytes) + "\n")
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
            temporary.unlink()
        return path


def home_root() -> Path:
    """Return the folder of ``SCHOOL_HOME``, or ``~/.hermes``."""
    return Path(os.environ.get("SCHOOL_HOME") or "~/.hermes").expanduser().absolute()


def home_at(root: Path) -> Home:
    """Return the home in a folder, its three movable folders where they are by default."""
    return Home(root, bookbags=root / "bookbag", signals=root / "signals", locks=root / "locks")
