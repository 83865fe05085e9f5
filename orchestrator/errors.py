"""The one tree of errors. Standard library only: it is used on the host and inside every container.

Each error says what was wrong and where, and carries the next step as a separate text, so that a program
can show one without the other. ``exit_code`` is what ``school`` ends with when nothing handles the error.

::

    SchoolError
    ├── UsageError                    2  the request can't be carried out as typed
    │   ├── ConfigError                  a setting or a file of settings is wrong
    │   └── RepositoryUnusableError      not a repository, bare, or without a commit
    ├── SandboxError                  7  the engine, an image or a standing part is not usable
    │   ├── EngineError
    │   │   ├── EngineUnavailableError      nothing answers at the engine's address
    │   │   ├── EnginePermissionError       the socket is there and this user may not open it
    │   │   ├── EngineServerError           a 5xx: the same request may work a moment later
    │   │   ├── ImageMissingError
    │   │   ├── ImageBuildError             carries the end of the build's log
    │   │   ├── NameTakenError              409 on create
    │   │   ├── ContainerNotFoundError
    │   │   └── MountRefusedError           a mount's source does not exist, or is not allowed
    │   ├── PartUnhealthyError              a standing part did not become healthy in time
    │   └── RepoSetupError                  the repository's own setup failed; carries the end of its log
    ├── GitError                      7  git failed at something that it should be able to do
    ├── GatewayError                  6  the model gateway or the gate refused or did not answer
    │   ├── GatewayUnavailableError      7
    │   └── GatewayAuthError          7  the gateway lets in what it must not, or keeps us out
    ├── LeafError                     7
    │   └── LeafNotBootedError               R-22: a call before boot()
    ├── BookbagError
    │   ├── BookbagCorruptError              the file is there and is not a bookbag (never "missing", R-3)
    │   ├── InvalidBeadError (ValueError)  2  a bead id outside the grammar of R-6
    │   ├── TransitionError                  a move that R-11 does not allow
    │   └── SealError                        a seal that does not verify
    ├── ReviewError                          a review could not be made; the verdict stays empty (R-37)
    │   └── ModelCallError                   the teacher's model refused, failed or did not answer
    ├── SessionCorruptedError                R-32
    ├── HandoffTimeoutError (TimeoutError)   R-48: names the state of each field
    ├── LedgerError                   7
    ├── RailError                     7  something beside the school refused, failed or did not answer
    │   ├── TrackerError                     the task tracker
    │   │   └── TaskNotFoundError         2  the tracker has no such task
    │   ├── MailError                        the mail service; nothing is taken for a person's word
    │   └── RuntimeRailError                 the outside runtime (Orca)
    ├── StaffLimitError                      a staff plugin asked for more than its trust allows (R-63)
    ├── OutputError                  74  what was to be printed could not be written
    ├── BlockedError                 10  nobody eligible, or a limit of the school is reached
    └── CancelledError              130  the person, or a signal, ended it
"""

from __future__ import annotations


class SchoolError(Exception):
    """Root of all errors that this program raises on purpose.

    Args:
        message: What was wrong and where.
        next_step: What the reader can do about it, as one sentence or command.
    """

    exit_code = 1

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class UsageError(SchoolError):
    """The request can't be carried out as typed."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting, or a file of settings, is wrong."""


class RepositoryUnusableError(UsageError):
    """Not a git repository, a bare one, or one without a commit."""


class SandboxError(SchoolError):
    """The engine, an image or a standing part can't be used."""

    exit_code = 7


class EngineError(SandboxError):
    """The container engine answered with an error that has no class of its own."""


class EngineUnavailableError(EngineError):
    """Nothing answers at the engine's address."""


class EnginePermissionError(EngineError):
    """The engine's socket exists and this user may not open it."""


class EngineServerError(EngineError):
    """The engine answered with a 5xx: the same request may work a moment later."""


class ImageMissingError(EngineError):
    """The engine does not have the image."""


class ImageBuildError(EngineError):
    """An image build failed. ``log_tail`` holds the end of its output."""

    def __init__(self, message: str, *, log_tail: str = "", next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.log_tail = log_tail


class NameTakenError(EngineError):
    """A container of that name exists (HTTP 409 on create)."""


class ContainerNotFoundError(EngineError):
    """The container does not exist (any more)."""


class MountRefusedError(EngineError):
    """The engine refused a mount: its source is missing on the engine's side, or not allowed."""


class PartUnhealthyError(SandboxError):
    """A standing part did not become healthy in time."""


class RepoSetupError(SandboxError):
    """The repository's own setup commands failed. ``log_tail`` holds the end of their output."""

    def __init__(self, message: str, *, log_tail: str = "", next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.log_tail = log_tail


class GitError(SchoolError):
    """Git failed at something that it should be able to do. ``stderr`` is git's own text."""

    exit_code = 7

    def __init__(self, message: str, *, stderr: str = "", next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.stderr = stderr


class GatewayError(SchoolError):
    """The model gateway, or the gate in front of it, refused or failed."""

    exit_code = 6


class GatewayUnavailableError(GatewayError):
    """The gateway or the gate does not answer."""

    exit_code = 7


class GatewayAuthError(GatewayError):
    """The gateway lets in what it must keep out, or keeps the principal out."""

    exit_code = 7


class LeafError(SchoolError):
    """A student leaf was used in a way that its lifecycle does not allow."""

    exit_code = 7


class LeafNotBootedError(LeafError):
    """A leaf was used before ``boot()`` or after ``dispose()`` (R-22)."""


class BookbagError(SchoolError):
    """Something about a bookbag is wrong."""


class BookbagCorruptError(BookbagError):
    """The file exists and does not hold a bookbag. Never treated as missing (R-3)."""


class InvalidBeadError(BookbagError, ValueError):
    """A bead id outside the grammar of R-6."""

    exit_code = 2


class TransitionError(BookbagError):
    """A move of the state machine that R-11 does not allow."""


class SealError(BookbagError):
    """A seal is missing, malformed, or does not verify."""


class ReviewError(SchoolError):
    """A review could not be made. The verdict stays empty (R-37)."""


class ModelCallError(ReviewError):
    """The teacher's model refused, failed or did not answer. ``status`` is the HTTP status, 0 when there was none."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.code = code


class SessionCorruptedError(SchoolError):
    """A teacher's persisted session can't be read (R-32)."""


class HandoffTimeoutError(SchoolError, TimeoutError):
    """The verdicts did not come in time (R-48). The message names the state of each awaited field."""


class LedgerError(SchoolError):
    """The ledger can't be opened or written."""

    exit_code = 7


class RailError(SchoolError):
    """Something beside the school (task tracker, mail, runtime) refused, failed or did not answer."""

    exit_code = 7


class TrackerError(RailError):
    """The task tracker refused, failed or did not answer (R-90)."""


class TaskNotFoundError(TrackerError):
    """The task tracker has no such task."""

    exit_code = 2


class MailError(RailError):
    """The mail service refused, failed or did not answer (R-45)."""


class RuntimeRailError(RailError):
    """The outside runtime refused, failed or did not answer (R-103)."""


class StaffLimitError(SchoolError):
    """A staff plugin asked for more than its trust allows (R-63)."""


class OutputError(SchoolError):
    """Stdout is closed or full. The number is outside the table of outcomes (EX_IOERR of sysexits.h)."""

    exit_code = 74


class BlockedError(SchoolError):
    """Nobody is eligible, or a limit of the school is reached."""

    exit_code = 10


class CancelledError(SchoolError):
    """A person or a signal ended the work."""

    exit_code = 130
