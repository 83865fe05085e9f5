"""Where a leaf's agent finds its things; the defaults are the container's, tests put their own."""

from __future__ import annotations

from orchestrator import layout


class Places:
    """Paths inside the leaf. A plain class: ``dataclasses`` would cost PID 1 ten milliseconds."""

    __slots__ = ("egress_socket", "gate_socket", "hermes", "home", "inbox", "made", "outbox", "relay_port", "workspace")

    def __init__(
        self,
        *,
        workspace: str = layout.WORKSPACE,
        inbox: str = layout.INBOX,
        outbox: str = layout.OUTBOX,
        home: str = layout.HOME,
        gate_socket: str = layout.GATE_SOCKET,
        egress_socket: str = layout.EGRESS_SOCKET,
        relay_port: int = layout.RELAY_PORT,
        hermes: str = layout.HERMES,
        made: str = layout.MADE_BY_SETUP,
    ) -> None:
        self.workspace = workspace
        self.inbox = inbox
        self.outbox = outbox
        self.home = home
        self.gate_socket = gate_socket
        self.egress_socket = egress_socket
        self.relay_port = relay_port
        self.hermes = hermes
        self.made = made

    @property
    def brief(self) -> str:
        """The brief, JSON."""
        return f"{self.inbox}/{layout.BRIEF_FILE}"

    @property
    def soul(self) -> str:
        """The student's persona; may be absent."""
        return f"{self.inbox}/{layout.SOUL_FILE}"

    @property
    def instructions(self) -> str:
        """The repository's own instructions as of the base commit; may be absent."""
        return f"{self.inbox}/{layout.INSTRUCTIONS_FILE}"
