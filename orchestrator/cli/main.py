"""The console script ``school``: a table of commands, each imported only when it is the one that was typed.

Errors of the program's own tree end here: what was wrong, the next step, and the error's exit code. With ``--json`` the
same goes to stdout as one object, so that a program never has to read prose.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from orchestrator import __version__
from orchestrator.errors import ImageBuildError, RepoSetupError, SchoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

# command -> (module below orchestrator.cli, help)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("school", "Bring the school up: engine, images, gateway, gate, teachers."),
    "spawn": ("spawn", "Give a task on a repository to a student, and have the result judged."),
    "route": ("route", "Show how the director would classify a task and who would get it; runs nothing."),
    "scores": ("route", "Show the student profiles' scores, their changes and their EFC figures."),
    "demo": ("demo", "Make a small sample repository and run one task on it."),
    "setup": ("setup", "Propose a .school.toml for a repository: its dependencies and its check."),
    "ps": ("look", "List beads that run, or whose removal is open."),
    "show": ("look", "Show a bead: verdicts, findings, score, branch."),
    "logs": ("look", "Show what happened in a bead; -f follows it and ends with its outcome."),
    "diff": ("look", "Show a bead's change."),
    "inbox": ("word", "List accepted beads that wait for your word."),
    "approve": ("word", "Approve exactly the commit that both judges passed; --apply merges it."),
    "reject": ("word", "Decline accepted work; nothing is merged."),
    "fix": ("word", "Send work to a new student with your note; both judges again."),
    "apply": ("word", "Merge an approved bead's commit: all of it, or nothing."),
    "review": ("word", "Have a bead judged that ended as not_reviewed."),
    "verify-record": ("records", "Check a bead's archived record again, claim by claim."),
    "keys": ("records", "List the judges' seal keys, or change them."),
    "status": ("look", "Show the standing parts and the settings in force."),
    "submit": ("tasks", "Put a task into the tracker, to be run later."),
    "tasks": ("tasks", "Look at the tracker's tasks; close, block or reopen one."),
    "run": ("run", "Take ready tasks from the tracker, several at once, with a live table."),
    "tick": ("tick", "Do one round (recovery, mail, fixes, ready tasks, staff) and exit; for a scheduler."),
    "mail": ("mail", "Send the notices that are due, and carry out the answers that count."),
    "serve": ("tick", "Do such rounds until it is told to end."),
    "gateway": ("gateway", "Providers and aliases of the model gateway."),
    "staff": ("staff", "Plugins that tend the school's own records."),
    "runtime": ("runtime", "Orca, where it is: status, worktrees, schedule."),
    "personas": ("personas", "Show which file each role's persona comes from, and why."),
    "teacher": ("teachers", "Show a teacher's state, history, drift and agreement."),
    "resume": ("care", "Adopt beads whose process died, and take them to their end."),
    "cancel": ("care", "End a bead now, whoever drives it."),
    "janitor": ("care", "Finish and remove what dead processes left, in the foreground."),
    "gc": ("care", "List what nobody needs any more; --apply removes it."),
    "doctor": ("care", "Look at everything the school needs, and name the next step."),
    "down": ("school", "Stop this home's standing parts."),
    "clean": ("school", "Remove this home's containers, volumes and images; records stay."),
}


class LazyGroup(TyperGroup):
    """Looks a command's module up only when it is called; the table above is enough for ``--help``."""

    _names_only = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command's module and return the command."""
        if cmd_name not in COMMANDS:
            return None
        if self._names_only or (ctx.resilient_parsing is False and sys.argv[1:2] and sys.argv[1] in {"--help", "-h"}):
            return _placeholder(cmd_name)
        module = importlib.import_module(f"orchestrator.cli.{COMMANDS[cmd_name][0]}")
        command = typer.main.get_command(module.app)
        found = getattr(command, "commands", {}).get(cmd_name, command)
        found.name = cmd_name
        return found

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete a command's name from the table: a person waits at the TAB key."""
        self._names_only = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._names_only = False


def _placeholder(name: str) -> Any:
    """Return a command that only knows its help: ``school --help`` imports no room."""
    stub = typer.Typer(add_completion=False, rich_markup_mode=None)

    @stub.command(name=name, help=COMMANDS[name][1])
    def _nothing() -> None: ...

    return typer.main.get_command(stub)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # markup would swallow what stands in brackets: [default: …]
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A sandbox for coding agents: a throw-away container per task, two judges, a branch bound to their verdicts.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"school {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def show_error(error: SchoolError, *, as_json: bool) -> None:
    """Print an error for a person on stderr and, for a program, as one object on stdout."""
    from orchestrator.cli.terminal import safe

    tail = error.log_tail if isinstance(error, (ImageBuildError, RepoSetupError)) else ""
    if as_json:
        data = {"error": type(error).__name__, "message": error.message, "next_step": error.next_step}
        if tail:
            data["log_tail"] = tail
        print(json.dumps(data))
    if tail:
        print(safe(tail.rstrip(), limit=100_000, lines=True), file=sys.stderr)
    print(f"school: {safe(error.message, limit=20_000, lines=True)}", file=sys.stderr)
    if error.next_step:
        print(f"        {safe(error.next_step, lines=True)}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; never returns."""
    from orchestrator.cli.terminal import ensure_standard_streams

    ensure_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        app(args=arguments, prog_name="school")
    except SchoolError as error:
        with contextlib.suppress(OSError):  # nobody can be told any more; the number still can
            show_error(error, as_json="--json" in arguments)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe went away (`school logs | head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
