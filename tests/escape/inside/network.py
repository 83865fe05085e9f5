"""Everything that a student with a gate can try on the network, on the gate's socket and on the relay in front of it."""

import contextlib
import json
import os
import socket
import threading
import time

from harness import Through, attack, make, refused, shell

GATE = "/school/gate/gate.sock"
MODEL = os.environ.get("OPENAI_MODEL", "")
CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": MODEL, "stream": False, "messages": [{"role": "user", "content": "hello"}]}).encode()


def raw(*parts, timeout=8, pause=0, close=False):
    """Send bytes to the gate as they are; return what comes back until it closes or falls silent."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(timeout)
        one.connect(GATE)
        answer = b""
        try:
            for part in parts:
                one.sendall(part)
                time.sleep(pause)
            if close:
                one.shutdown(socket.SHUT_WR)
            while chunk := one.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionError):
            pass
        return answer


def head(method, path, *headers, body=b""):
    lines = [f"{method} {path} HTTP/1.1", "Host: gate", *headers]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def statuses(answer):
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]


def only_refused(*requests, **options):
    """Each must be refused, and no answer of the gateway's may be among what comes back."""
    found = []
    for one in requests:
        answer = raw(one, timeout=4, **options)
        codes = statuses(answer)
        if any(code < 400 for code in codes):
            raise Through(f"{one[:120]!r}: {answer[:200]!r}")
        if not (answer == b"" or b"school_gate" in answer or set(codes) <= {400, 431, 413}):
            raise Through(f"answered by another than the gate: {answer[:200]!r}")
        found += codes or ["closed"]
    return sorted(map(str, set(found)))


@attack("network-any-address", 60)
def any_address():
    held = {}
    for where in (
        ("1.1.1.1", 443),
        ("8.8.8.8", 53),
        ("172.17.0.1", 2375),
        ("172.17.0.1", 22),
        ("10.0.0.1", 80),
        ("192.168.0.1", 80),
        ("0.0.0.0", 2375),
        ("255.255.255.255", 9),
    ):
        with socket.socket() as one:
            one.settimeout(3)
            held[where[0]] = refused(one.connect, where)
    return set(held.values())


@attack("network-metadata")
def metadata():
    held = {}
    for where in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16"):
        with socket.socket() as one:
            one.settimeout(3)
            held[where] = refused(one.connect, (where, 80))
    return set(held.values())


@attack("network-ipv6")
def ipv6():
    held = {}
    for where in ("2606:4700:4700::1111", "fd00:ec2::254", "fe80::1%lo", "ff02::1"):
        with socket.socket(socket.AF_INET6) as one:
            one.settimeout(3)
            held[where] = refused(
                one.connect,
                socket.getaddrinfo(where, 80, socket.AF_INET6, flags=socket.AI_NUMERICHOST)[0][4]
                if "%" not in where
                else (where, 80),
            )
    return set(held.values())


@attack("network-dns", 60)
def dns():
    held = {}
    for name in (
        "example.com",
        "omniroute",
        "rehearsal",
        "host.docker.internal",
        "gateway.docker.internal",
        "metadata.google.internal",
    ):
        held[name] = refused(socket.getaddrinfo, name, 80)
    for server in ("127.0.0.11", "127.0.0.53", "8.8.8.8"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(2)
            with contextlib.suppress(OSError):
                one.sendto(
                    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01",
                    (server, 53),
                )
                held[server] = refused(one.recvfrom, 512)
    return held


@attack("network-udp-and-multicast")
def udp():
    held = {}
    for where in (("8.8.8.8", 53), ("224.0.0.1", 5353), ("239.255.255.250", 1900), ("172.17.255.255", 9)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            held[where[0]] = refused(one.sendto, b"x", where)
    return set(held.values())


@attack("network-own-loopback-only")
def loopback():
    """A port scan of loopback: the relay is there, and nothing that is not this container's."""
    open_ports = []
    for port in range(1, 65536):
        with socket.socket() as one:
            one.settimeout(0.2)
            if one.connect_ex(("127.0.0.1", port)) == 0 and one.getsockname() != one.getpeername():  # not met itself
                open_ports.append(port)
    if set(open_ports) - {20128}:
        raise Through(str(open_ports))
    return open_ports


@attack("network-change-devices")
def change_devices():
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        import fcntl

        request = struct.pack("16sH14s", b"lo", 0, b"")
        held = [
            refused(fcntl.ioctl, one, number, request) for number in (0x8914, 0x8916, 0x890B)
        ]  # flags, address, route
    code, text = shell("ip link add d0 type dummy 2>&1; ip tuntap add t0 mode tun 2>&1; true")
    return held


@attack("gate-folder")
def gate_folder():
    """Another grant's socket, and a socket of one's own in the gate's place."""
    entries = os.listdir("/school/gate")
    if entries != ["gate.sock"]:
        raise Through(str(entries))
    held = [
        refused(os.unlink, GATE),
        refused(os.rename, GATE, GATE + "2"),
        refused(make, "/school/gate/x"),
        refused(os.chmod, GATE, 0o777),
    ]
    for path in ("/school/gate/../sockets", "/gate/control/control.sock", "/school/gate/../control/control.sock"):
        with socket.socket(socket.AF_UNIX) as one:
            held.append(refused(one.connect, path))
    return set(held)


@attack("gate-other-routes", 60)
def other_routes():
    routes = ["/api/keys", "/api/v1/registered-keys", "/v1/files", "/v1/batches", "/api/settings", "/api/providers", "/api/usage/call-logs", "/api/auth/login",
              "/dashboard", "/", "/v1/embeddings", "/v1/images/generations", "/v1/models/x", "/api/monitoring/health", "/grants", "/health", "/metrics", "/.env"]  # fmt: skip
    return only_refused(
        *[head(method, route, "Connection: close") for route in routes for method in ("GET", "POST", "PUT", "DELETE")][
            :72
        ]
    )


@attack("gate-path-tricks", 60)
def path_tricks():
    paths = [CHAT + "/../../../api/keys", "/v1/chat/completions/..%2f..%2f..%2fapi/keys", "/v1/./chat/completions", "//v1/chat/completions", "/v1/chat%2fcompletions", "/V1/chat/completions", CHAT + ";/api/keys",
             CHAT + "#/../api/keys", CHAT + "%00", CHAT + "\\..\\api", "/v1/models/../../api/keys", "*"]  # fmt: skip
    return only_refused(*[head("POST", path, "Connection: close", body=BODY) for path in paths])


@attack("gate-absolute-url")
def absolute_url():
    urls = [
        "http://omniroute:20128/api/keys",
        "http://169.254.169.254/latest/meta-data/",
        "https://example.com/",
        "http://gate@omniroute:20128/api/keys",
        "file:///etc/passwd",
        "http://omniroute:20128" + CHAT,
    ]
    return only_refused(*[head("POST", url, "Connection: close", body=BODY) for url in urls])


@attack("gate-connect")
def connect():
    return only_refused(
        *[
            head("CONNECT", where, "Connection: close")
            for where in ("omniroute:20128", "example.com:443", "169.254.169.254:80", "[::1]:22")
        ]
    )


@attack("gate-upgrade")
def upgrade():
    return only_refused(
        head(
            "GET",
            "/v1/models",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: eA==",
        ),
        head(
            "POST",
            CHAT,
            "Connection: Upgrade, HTTP2-Settings",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABkAAQAAP__",
            body=BODY,
        ),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    )


INNER = b"GET /api/keys HTTP/1.1\r\nHost: omniroute\r\nAuthorization: Bearer x\r\n\r\n"


@attack("gate-smuggling", 90)
def smuggling():
    """Two lengths of one body: what one side takes for the rest, the other takes for a request."""
    shapes = [
        ("Content-Length: 5", "Transfer-Encoding: chunked"), ("Transfer-Encoding: chunked", "Content-Length: 5"), ("Content-Length: 5", "Content-Length: 60"),
        ("Transfer-Encoding: xchunked",), ("Transfer-Encoding : chunked",), ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding:\x0bchunked",), ("Content-Length: +5",), ("Content-Length: 0x5",), ("Content-Length: 5,6",), ("Content-Length: -1",), (" Content-Length: 5",), ("Foo: x\r\n Transfer-Encoding: chunked",),
    ]  # fmt: skip
    return only_refused(*[head("POST", CHAT, *shape) + b"0\r\n\r\n" + INNER for shape in shapes])


@attack("gate-chunk-tricks", 60)
def chunk_tricks():
    start = head("POST", CHAT, "Transfer-Encoding: chunked")
    bodies = [
        b"FFFFFFFFFFFFFFFF\r\nx",
        b"-1\r\nx\r\n0\r\n\r\n",
        b'5;ext="\r\n\r\n' + INNER,
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"1" * 5000 + b"\r\n",
        b"0\r\nContent-Length: 5\r\nX-School-Bead: other\r\n\r\n" + INNER,
    ]
    return only_refused(*[start + body for body in bodies])


@attack("gate-second-request-on-a-refused-connection")
def second_request():
    hidden = head("GET", "/api/keys", body=b"")
    return only_refused(
        head("POST", "/v1/files", f"Content-Length: {len(hidden) + 40}") + hidden, head("GET", "/v1/files") + hidden
    )


@attack("gate-header-injection")
def header_injection():
    """Line breaks in what is passed on: the gateway would see headers of the student's."""
    values = ["x\r\nX-Admin: 1", "x\nAuthorization: Bearer stolen", "x\rHost: other", "\x00", "x\u00ff" * 3]
    found = []
    for name in ("User-Agent", "Anthropic-Version", "OpenAI-Beta"):
        for value in values:
            answer = raw(head("POST", CHAT, f"{name}: {value}", "Connection: close", body=b"{}"), timeout=4)
            found += statuses(answer)
            if any(code < 400 for code in statuses(answer)):
                raise Through(answer[:200])
    return set(found)


@attack("gate-oversized-head", 60)
def oversized_head():
    many = [f"X-{number}: a" for number in range(5000)]
    return only_refused(
        head("POST", CHAT, "X-Long: " + "a" * 100_000),
        head("POST", CHAT, *many),
        head("POST", "/" + "a" * 200_000),
        b"POST " + b"a" * 500_000,
    )


@attack("gate-endless-body", 90)
def endless_body():
    """More than may be read, by length and by chunks."""
    found = only_refused(head("POST", CHAT, "Content-Length: 99999999999") + b"{")
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(20)
        one.connect(GATE)
        one.sendall(head("POST", CHAT, "Transfer-Encoding: chunked"))
        sent, started = 0, time.monotonic()
        try:
            while time.monotonic() - started < 30:
                one.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
                sent += 65536
        except OSError as error:
            return [found, f"{type(error).__name__} after {sent >> 20} MB and {time.monotonic() - started:.0f} s"]
    raise Through(f"{sent >> 20} MB were read and it goes on")


@attack("gate-body-of-countless-values", 60)
def countless():
    bodies = [
        b'{"model":"x","m":' + b"[" * 500_000,
        b'{"model":"x","m":[' + b"1," * 2_000_000 + b"1]}",
        b'{"a":' * 100_000,
        b'{"model": NaN}',
        b"\xff\xfe\x00",
    ]
    return only_refused(*[head("POST", CHAT, "Connection: close", body=body) for body in bodies])


@attack("gate-many-connections", 60)
def many_connections():
    """All that it takes, silent; and the gate goes on answering this one and, as the test sees, the others."""
    kept = []
    try:
        for _ in range(600):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(5)
            one.connect(GATE)
            with contextlib.suppress(OSError):
                one.sendall(b"POST / HTTP/1.1\r\nX: ")
            kept.append(one)
    except OSError as error:
        return f"{type(error).__name__} after {len(kept)}"
    finally:
        alive = 0
        for one in kept:
            one.settimeout(0.01)
            try:
                alive += one.recv(1) != b""
            except TimeoutError:
                alive += 1
            except OSError:
                pass
            one.close()
        if alive > 200:
            raise Through(f"{alive} connections held open")
    return f"{alive} of 600 were kept"


@attack("gate-slow-client", 30)
def slow_client():
    """A head that never ends must not keep others from being served."""
    slow = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for one in slow:
        one.connect(GATE)
        one.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: gate\r\nContent-Length: 1000\r\n\r\n{")
    answer = raw(head("GET", "/v1/models", "Connection: close"), timeout=10)
    for one in slow:
        one.close()
    if statuses(answer) != [200]:
        raise RuntimeError(f"the gate stopped serving: {answer[:100]!r}")
    return "served beside 20 slow ones"


@attack("gate-foreign-model")
def foreign_model():
    names = [
        "auto/review",
        "gpt-4",
        "",
        MODEL + " ",
        MODEL.upper(),
        "openai-compatible/rehearsal",
        [MODEL],
        {"id": MODEL},
        None,
        7,
        MODEL + "\u0000",
    ]
    return only_refused(*[head("POST", CHAT, "Connection: close", body=json.dumps({"model": name, "messages": []}).encode()) for name in names],
                        head("POST", CHAT, "Connection: close", body=b'{"model": "%s", "messages": [], "model": "auto/review"}' % MODEL.encode()))  # fmt: skip


@attack("gate-other-models-listed")
def models_listed():
    answer = raw(head("GET", "/v1/models", "Connection: close"))
    listed = [row["id"] for row in json.loads(answer.partition(b"\r\n\r\n")[2])["data"]]
    if listed != [MODEL]:
        raise Through(str(listed))
    return listed


@attack("gate-own-credentials")
def own_credentials():
    """Keys of the client's own: the gate puts its grant's in their place, and shows it nowhere."""
    answer = raw(
        head(
            "POST",
            CHAT,
            "Authorization: Bearer sk-admin",
            "X-Api-Key: sk-admin",
            "Cookie: auth_token=admin",
            "X-Forwarded-For: 127.0.0.1",
            "Connection: close",
            body=BODY,
        ),
        timeout=15,
    )
    if b"Bearer" in answer or b"sk-" in answer or b"auth_token" in answer:
        raise Through(answer[:300])
    return statuses(answer)


@attack("gate-other-beads-identity")
def other_bead():
    answer = raw(
        head("POST", CHAT, "X-School-Bead: coder-general-00000000", "Connection: close", body=BODY), timeout=15
    )
    return statuses(answer)


@attack("gate-relay-is-no-proxy")
def relay():
    """The TCP relay leads to the gate alone."""
    with socket.socket() as one:
        one.settimeout(5)
        one.connect(("127.0.0.1", 20128))
        one.sendall(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = one.recv(4096)
    if b"school_gate" not in answer:
        raise Through(answer[:200])
    return statuses(answer)


@attack("gate-budget-in-parallel", 90)
def parallel():
    """All at once, against a budget of calls; the test counts what the gateway saw."""
    found = []

    def one():
        found.extend(statuses(raw(head("POST", CHAT, "Connection: close", body=BODY), timeout=30)))

    threads = [threading.Thread(target=one) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {code: found.count(code) for code in set(found)}


@attack("gate-after-the-budget")
def after_budget():
    answers = [raw(head("POST", CHAT, "Connection: close", body=BODY), timeout=15) for _ in range(3)]
    if any(b"budget_exhausted" not in answer for answer in answers):
        raise Through(str([answer[:100] for answer in answers]))
    return "budget_exhausted"
