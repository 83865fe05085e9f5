"""A student with a way out, on a whole school: what is not listed, or leads inside, stays out of reach."""

import subprocess

import pytest

from orchestrator.gateway.gate_client import GateClient

pytestmark = [pytest.mark.engine, pytest.mark.standing]

TRY = r"""
import os, socket
def ask(line):
    with socket.create_connection(("127.0.0.1", 20129), 20) as one:
        one.settimeout(20)
        one.sendall(line.encode() + b"\r\nHost: x\r\n\r\n")
        answer = b""
        while chunk := one.recv(4096):
            answer += chunk
        return answer
for line in ("CONNECT omniroute.localdomain.test:20128 HTTP/1.1", "CONNECT other.example:443 HTTP/1.1", "CONNECT 169.254.169.254:80 HTTP/1.1",
             "CONNECT rehearsal.school:8080 HTTP/1.1", "GET http://omniroute:20128/api/keys HTTP/1.1"):
    print(line.split()[1], ask(line).split(b"\r\n\r\n")[-1].decode())
print("PROXY", os.environ["HTTPS_PROXY"], os.environ["NO_PROXY"], sorted(os.listdir("/school/gate")))
"""
ASKED = "rehearsal.school:8080"  # a name of the school's own network: it leads to a private address, if anywhere


def commit(repo, places):
    listed = ", ".join(f'"{place}"' for place in places)
    (repo / ".school.toml").write_text(f"[egress]\nallow = [{listed}]\n")
    for arguments in (
        ("add", "-A"),
        ("-c", "user.name=u", "-c", "user.email=u@x", "commit", "-q", "-m", "ask for a way out"),
    ):
        subprocess.run(["git", "-C", str(repo), *arguments], check=True)


def test_what_is_not_listed_or_leads_inside_is_refused(school, sample):
    commit(sample, [ASKED, "forbidden.example:443"])
    command = f"cat > /tmp/try.py <<'END'\n{TRY}END\npython3 /tmp/try.py"
    done = school.spawn(
        sample, "Look.", "--role", "searcher", "--agent", "command", "--command", command, SCHOOL_EGRESS_ALLOW=ASKED
    )
    output = done.report["output"]
    assert "PROXY http://127.0.0.1:20129 127.0.0.1,localhost ['egress.sock', 'gate.sock']" in output, output
    assert output.count("egress_not_allowed") == 3
    assert output.count("bad_request") == 1
    assert "address_not_public" in output or "not_resolved" in output
    notes = " ".join(done.report["diagnostics"])
    assert f"the student can reach {ASKED}" in notes
    assert "forbidden.example:443, which SCHOOL_EGRESS_ALLOW does not allow" in notes
    logged = [
        entry
        for entry in GateClient(school.home).log(bead=done.report["bead"])
        if str(entry["route"]).startswith("CONNECT")
    ]
    assert len(logged) >= 4


def test_a_repository_alone_opens_nothing(school, sample):
    commit(sample, [ASKED])
    done = school.spawn(
        sample,
        "Look.",
        "--role",
        "searcher",
        "--agent",
        "command",
        "--command",
        "ls /school/gate; env | grep -i proxy; true",
    )
    assert done.report["output"].split() == ["gate.sock"]
