"""A whole round by SMTP and IMAP, against real servers: aiosmtpd and pymap, with STARTTLS and without (R-45, R-46)."""

from __future__ import annotations

import contextlib
import imaplib
import re
import socket
import ssl
import subprocess
import sys
import time
from email.message import EmailMessage

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from orchestrator.errors import ConfigError, MailError
from orchestrator.home import home_at
from orchestrator.rails.mail import allowed_senders, open_mailer, read_answers, send_notice
from orchestrator.rails.mail import smtp as adapter
from orchestrator.rails.mail.base import Outgoing, Reply
from orchestrator.rails.mail.smtp import SmtpMailer, place
from orchestrator.settings import load_settings

pytestmark = [
    # pymap and aiosmtpd are kept for tests only; what their own code warns of is theirs
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]

ANN = "ann@example.org"
SCHOOL = "school@example.org"
PASSWORD = "secret words"
SHA = "ab12" * 10
BEAD = "coder-general-1a2b3c4d"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            key,
            "-out",
            cert,
            *subject,
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Keep:
    """Keeps what is delivered."""

    def __init__(self):
        self.mails: list[tuple[str, list[str], bytes]] = []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd's name
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(handled=False, success=(data.login, data.password) == (SCHOOL.encode(), PASSWORD.encode()))


@pytest.fixture
def smtp(certificate):
    """An SMTP server that wants STARTTLS and a password."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    kept = Keep()
    controller = Controller(
        kept,
        hostname="127.0.0.1",
        port=free_port(),
        tls_context=context,
        require_starttls=True,
        authenticator=authenticate,
        auth_required=True,
    )
    controller.start()
    yield kept, controller.port
    controller.stop()


@contextlib.contextmanager
def running_pymap(*options: str):
    port = free_port()
    user = ["--demo-user", SCHOOL, "--demo-password", PASSWORD]
    argv = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        "import sys; from pymap.main import main; sys.exit(main())",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    argv += ["--no-service", "admin", "--no-service", "managesieve", *options, "dict", *user]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                break
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline, "pymap did not start"
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="session")
def imap(certificate):
    """An IMAP server with STARTTLS."""
    with running_pymap("--cert", str(certificate[0]), "--key", str(certificate[1])) as port:
        yield port


class Mailbox:
    """The school's mailbox as its server sees it: mails are put there as they would arrive."""

    def __init__(self, port: int) -> None:
        context = ssl.create_default_context()
        self.box = imaplib.IMAP4("localhost", port)
        self.box.starttls(context)
        self.box.login(SCHOOL, PASSWORD)
        self.box.select("INBOX")
        self.box.uid("STORE", "1:*", "+FLAGS", "(\\Deleted)")
        self.box.expunge()
        self.number = 0

    def receive(
        self, text: str | None, *, thread: str = "", sender: str = f"Ann <{ANN}>", raw: bytes | None = None, **more
    ):
        self.number += 1
        message = EmailMessage()
        message["From"] = sender
        message["To"] = SCHOOL
        message["Message-ID"] = f"<m{self.number}.{time.time_ns()}@example.org>"
        if thread:
            message["In-Reply-To"] = thread
            message["References"] = f"<older@example.org> {thread}"
        for name, value in more.items():
            message[name.replace("_", "-")] = value
        if text is not None:
            message.set_content(text)
        self.box.append("INBOX", None, imaplib.Time2Internaldate(time.time()), raw or message.as_bytes())


@pytest.fixture
def mailbox(imap, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    made = Mailbox(imap)
    yield made
    made.box.logout()


@pytest.fixture
def mailer(smtp, imap, mailbox):
    return SmtpMailer(
        place(f"smtp://{SCHOOL.replace('@', '%40')}@localhost:{smtp[1]}", ("smtps", "smtp"), "S"),
        place(f"imap://{SCHOOL.replace('@', '%40')}@localhost:{imap}", ("imaps", "imap"), "I"),
        address=SCHOOL,
        password=PASSWORD,
        timeout=20,
    )


@pytest.fixture
def notice(mailer, notices, report, smtp):
    """A notice that was sent: (thread, token)."""
    send_notice(mailer, notices, report(), key=b"k" * 32, to=ANN)
    text = smtp[0].mails[0][2].decode()
    return notices.waiting(now=0.0)[0].thread_id, re.search(r"/reject ([0-9a-f]{32})", text)[1]


@pytest.fixture
def read(mailer, notices):
    acted = []

    def go(allow=frozenset({ANN})):
        def act(answer):
            acted.append((answer.command, answer.note))
            return "done"

        handled, problems = read_answers(mailer, notices, allow=allow, no_approval=lambda bead: "", act=act)
        return [(h.command, h.result) for h in handled], problems

    go.acted = acted
    return go


def test_a_notice_leaves_over_tls_with_the_message_id_that_answers_will_name(notice, smtp):
    sender, to, content = smtp[0].mails[0]
    assert (sender, to) == (SCHOOL, [ANN])
    assert f"Message-ID: {notice[0]}".encode() in content
    assert b"Auto-Submitted: auto-generated" in content


def test_an_answer_is_read_carried_out_once_and_answered(notice, mailbox, read, smtp):
    thread, token = notice
    mailbox.receive(f"/approve {token} {SHA}\n\nOn Monday School wrote:\n> /reject {token} WHY\n", thread=thread)
    assert read() == ([("approve", "done")], ())
    assert read() == ([], ())
    assert read.acted == [("approve", "")]
    _, to, content = smtp[0].mails[-1]
    assert to == [ANN]
    assert f"{BEAD}: done".encode() in content
    assert thread.encode() in content


def test_mails_are_neither_marked_nor_moved(notice, mailbox, read):
    mailbox.receive(f"/reject {notice[1]}", thread=notice[0])
    read()
    _, found = mailbox.box.uid("SEARCH", "UNSEEN")
    assert len(found[0].split()) == 1


def test_each_other_mail_is_refused_with_its_reason(notice, mailbox, read):
    thread, token = notice
    good = f"/approve {token} {SHA}"
    html = EmailMessage()
    html["From"], html["Message-ID"], html["In-Reply-To"] = ANN, "<html@example.org>", thread
    html.set_content(f"<p>{good}</p>", subtype="html")
    two = f"From: {ANN}\r\nFrom: eve@evil.org\r\nMessage-ID: <two@x>\r\nIn-Reply-To: {thread}\r\n\r\n{good}\r\n"
    charset = (
        f"From: {ANN}\r\nMessage-ID: <cs@x>\r\nIn-Reply-To: {thread}\r\n"
        f"Content-Type: text/plain; charset=none-such\r\n\r\n{good}\r\n"
    )
    cases = [
        ({"text": good, "thread": thread, "sender": "eve@evil.org"}, "not on the allow-list"),
        ({"text": good, "thread": thread, "sender": f'"{ANN}" <eve@evil.org>'}, "exactly one address"),
        ({"text": good}, "no notice waits"),
        ({"text": good, "thread": "<another@example.org>"}, "no notice waits"),
        ({"text": good, "thread": thread, "Auto_Submitted": "auto-replied"}, "a program sent it"),
        ({"text": good, "thread": thread, "Authentication_Results": "mx; dmarc=fail"}, "dmarc=fail"),
        ({"text": f"{good}\n/reject {token}", "thread": thread}, "more than one command"),
        ({"text": f"/approve {'f' * 32} {SHA}", "thread": thread}, "not this notice's"),
        ({"text": None, "raw": html.as_bytes()}, "only HTML"),
        ({"text": None, "raw": two.encode()}, "exactly one address"),
        ({"text": None, "raw": charset.encode()}, "it is empty"),
        ({"text": None, "raw": b"\xff\x00garbage\r\n"}, "no notice waits"),
    ]
    for values, _ in cases:
        mailbox.receive(**values)
    handled, problems = read()
    assert problems == ()
    assert read.acted == []
    assert [command for command, _ in handled] == [None] * len(cases)
    for (_, reason), (_, said) in zip(cases, handled, strict=True):
        assert reason in said
    mailbox.receive(good, thread=thread)
    assert read()[0] == [("approve", "done")]


def test_the_schools_own_mail_is_no_answer(notice, mailbox, read):
    mailbox.receive(f"/reject {notice[1]}", thread=notice[0], sender=f"School <{SCHOOL}>")
    assert read() == ([], ())


def test_a_mail_that_is_too_large_is_not_fetched_and_refused(notice, mailbox, read, monkeypatch):
    monkeypatch.setattr(adapter, "SIZE_LIMIT", 300)
    mailbox.receive(f"/reject {notice[1]} " + "x " * 300, thread=notice[0])
    assert read()[0] == [(None, "it is too long")]


def test_more_mails_than_are_looked_at_is_a_problem_that_is_said(notice, mailbox, read, monkeypatch):
    monkeypatch.setattr(adapter, "MAILS", 2)
    for _ in range(2):
        mailbox.receive("hello", thread=notice[0])
    mailbox.receive(f"/reject {notice[1]}", thread=notice[0])
    handled, problems = read()
    assert handled[-1] == ("reject", "done")
    assert "only the newest 2" in problems[0]


def test_a_wrong_password_is_said(mailer, mailbox):
    mailer._password = "wrong"
    with pytest.raises(MailError, match="SMTP at localhost refused"):
        mailer.send(Outgoing(ANN, "s", "t", "k"))
    with pytest.raises(MailError, match="IMAP at localhost refused"):
        mailer.incoming([], since=time.time())


def test_a_server_whose_certificate_is_not_trusted_gets_no_password(mailer, mailbox, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(MailError, match="CERTIFICATE_VERIFY_FAILED"):
        mailer.send(Outgoing(ANN, "s", "t", "k"))
    with pytest.raises(MailError, match="CERTIFICATE_VERIFY_FAILED"):
        mailer.incoming([], since=time.time())


def test_a_server_without_encryption_gets_no_password_unless_it_is_allowed(notices, report):
    kept = Keep()
    controller = Controller(kept, hostname="127.0.0.1", port=free_port())
    controller.start()
    with running_pymap("--no-tls") as port:
        places = (
            place(f"smtp://127.0.0.1:{controller.port}", ("smtp",), "S"),
            place(f"imap://u@127.0.0.1:{port}", ("imap",), "I"),
        )
        strict = SmtpMailer(*places, address=SCHOOL, password=PASSWORD)
        with pytest.raises(MailError, match="SMTP"):
            strict.send(Outgoing(ANN, "s", "t", "k"))
        with pytest.raises(MailError, match="IMAP"):
            strict.incoming([], since=time.time())
        SmtpMailer(*places, address=SCHOOL, password=PASSWORD, insecure=True).send(Outgoing(ANN, "s", "t", "k"))
    controller.stop()
    assert len(kept.mails) == 1


def test_nobody_there_is_a_mail_error():
    nowhere = place("smtp://127.0.0.1:9", ("smtp",), "S")
    mailer = SmtpMailer(nowhere, nowhere, address=SCHOOL, password="", timeout=5)
    with pytest.raises(MailError, match=r"SMTP at 127\.0\.0\.1:9"):
        mailer.send(Outgoing(ANN, "s", "t", "k"))
    with pytest.raises(MailError, match=r"IMAP at 127\.0\.0\.1:9"):
        mailer.incoming([], since=0.0)
    with pytest.raises(MailError, match="no sender"):
        mailer.answer(Reply("m", "t", "nobody"), "x")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no address"),
        ("https://x", "no address"),
        ("imaps://", "no address"),
        ("imaps://x:port", "no address"),
        ("imaps://u:pw@x", "holds a password"),
    ],
)
def test_an_url_that_is_none_is_refused(url, says):
    with pytest.raises(ConfigError, match=says):
        place(url, ("imaps", "imap"), "SCHOOL_IMAP_URL")


def test_an_url_names_user_port_and_folder():
    found = place("imaps://me%40x.org@mail.x.org/School%2FIn", ("imaps", "imap"), "I")
    assert (found.user, found.port, found.folder) == ("me@x.org", 993, "School/In")


# -- which service -------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("AGENTMAIL_API_KEY", "SCHOOL_MAIL_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return home_at(tmp_path / "home").ensure()


def test_mail_is_off_until_it_is_asked_for(home):
    assert open_mailer(home, load_settings()) is None


def test_agentmail_takes_its_key_from_the_environment_or_a_key_file(home, monkeypatch):
    chosen = load_settings(mail="agentmail", mail_to=ANN, agentmail_inbox=SCHOOL)
    with pytest.raises(ConfigError, match="AGENTMAIL_API_KEY is not set"):
        open_mailer(home, chosen)
    (home.keys / "agentmail").write_text("key\n")
    opened = open_mailer(home, chosen)
    assert opened.name == "agentmail"
    opened.close()


SMTP = {"mail": "smtp", "mail_to": ANN, "mail_from": SCHOOL, "smtp_url": "smtps://h", "imap_url": "imaps://h"}


def test_smtp_is_put_together_from_the_settings(home, monkeypatch):
    monkeypatch.setenv("SCHOOL_MAIL_PASSWORD", "pw")
    assert open_mailer(home, load_settings(**SMTP)).name == "smtp"
    for name in ("mail_to", "mail_from", "smtp_url", "imap_url"):
        with pytest.raises(ConfigError, match=f"SCHOOL_{name.upper()}"):
            open_mailer(home, load_settings(**{**SMTP, name: "x"}))


def test_the_allow_list_holds_whole_addresses_and_is_empty_by_default():
    assert allowed_senders(load_settings()) == frozenset()
    assert allowed_senders(load_settings(mail_to=ANN)) == frozenset()
    assert allowed_senders(load_settings(mail_allow=f" {ANN.upper()} , b@x.org,")) == {ANN, "b@x.org"}
    with pytest.raises(ConfigError, match="no address"):
        allowed_senders(load_settings(mail_allow="*@example.org, x"))
