"""Which mail service a home uses, and whose answers count there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestrator.errors import ConfigError
from orchestrator.rails.mail.judge import sole_address
from orchestrator.rails.mail.smtp import SmtpMailer, place

if TYPE_CHECKING:
    from orchestrator.home import Home
    from orchestrator.rails.mail.base import Mailer
    from orchestrator.settings import Settings


def open_mailer(home: Home, settings: Settings) -> Mailer | None:
    """Return the mail service, or None when mail is off.

    Raises:
        ConfigError: a setting, key or password is missing; the message names it.
    """
    if settings.mail == "off":
        return None
    if sole_address(settings.mail_to) is None:
        raise ConfigError("SCHOOL_MAIL_TO is no address.", next_step="Set it to where notices are to go.")
    if settings.mail == "agentmail":
        from orchestrator.rails.mail.agentmail import AgentMailer  # noqa: PLC0415 - its SDK is an extra

        if not settings.agentmail_inbox:
            raise ConfigError("SCHOOL_AGENTMAIL_INBOX is not set.", next_step="Set it to the school's inbox.")
        key = _secret(home, "AGENTMAIL_API_KEY", "agentmail")
        return AgentMailer(settings.agentmail_inbox, key, url=settings.agentmail_url)
    if sole_address(settings.mail_from) is None:
        raise ConfigError("SCHOOL_MAIL_FROM is no address.", next_step="Set it to the school's own mailbox.")
    return SmtpMailer(
        place(settings.smtp_url, ("smtps", "smtp"), "SCHOOL_SMTP_URL"),
        place(settings.imap_url, ("imaps", "imap"), "SCHOOL_IMAP_URL"),
        address=settings.mail_from,
        password=_secret(home, "SCHOOL_MAIL_PASSWORD", "mail-password"),
        insecure=settings.mail_insecure,
    )


def allowed_senders(settings: Settings) -> frozenset[str]:
    """Return the addresses whose answers count, in lower case; empty means nobody's.

    Raises:
        ConfigError: an entry is no single address.
    """
    entries = [entry.strip() for entry in settings.mail_allow.split(",") if entry.strip()]
    found = {entry: sole_address(entry) for entry in entries}
    if bad := [entry for entry, address in found.items() if address is None]:
        raise ConfigError(
            f"SCHOOL_MAIL_ALLOW holds {bad[0][:80]!r}, which is no address.",
            next_step="Write whole addresses with commas between them; there are no patterns.",
        )
    return frozenset(address for address in found.values() if address)


def _secret(home: Home, variable: str, file: str) -> str:
    """Return a secret from the environment or from a key file of the home."""
    if value := os.environ.get(variable, "").strip():
        return value
    path = home.keys / file
    try:
        value = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        value = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}.") from error
    if not value:
        raise ConfigError(f"{variable} is not set.", next_step=f"Set it, or write it to {path} (mode 0600).")
    return value
