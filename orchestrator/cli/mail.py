"""``school mail``: one round of mail by hand; the tick does the same on its own."""

from __future__ import annotations

import sys

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import MailError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def mail(
    _once: bool = typer.Option(True, "--once", help="One round: all there is; a scheduler repeats it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Send the notices that are due, and carry out the answers that count."""
    from dataclasses import asdict

    from orchestrator.cli.terminal import Terminal, one_line
    from orchestrator.errors import ConfigError
    from orchestrator.principal.ledger import Ledger
    from orchestrator.principal.mailing import mail_round
    from orchestrator.settings import settings

    in_force = settings()
    home = in_force.home().ensure()
    with Ledger(home.ledger) as ledger:
        done = mail_round(home, ledger, in_force)
    if done is None:
        raise ConfigError(
            "Mail is off.", next_step="Set SCHOOL_MAIL to agentmail or smtp; docs/mail.md tells the rest."
        )
    if as_json:
        print_json(asdict(done))
    else:
        terminal = Terminal(sys.stdout)
        for bead in done.sent:
            terminal.line(f"notice sent: {bead}")
        for handled in done.handled:
            who, what = one_line(handled.sender), handled.command or "refused"
            terminal.line(f"answer of {who} on {handled.bead or 'no bead'}: {what}: {one_line(handled.result)}")
        if not done.sent and not done.handled:
            terminal.line("nothing to send, no answer")
    if done.problems:
        raise MailError("; ".join(done.problems), next_step="What could not be done now is tried in the next round.")
