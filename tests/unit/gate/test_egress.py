"""Allow-listed egress: exact names, public addresses only, counted, logged, cut at revocation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gate.egress import EgressSocket, public
from orchestrator.gate.place import valid_place

PLACE = "files.example.org:443"
PUBLIC = "93.184.216.34"
REQUEST = f"CONNECT {PLACE} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.fixture
def proxy(gate_root, helpers):
    """Return ``run(test, addresses, **terms)``: a proxy whose names resolve to ``addresses``, in front of an echo server."""

    def run(test, addresses=(PUBLIC,), **terms):
        async def body():
            ended, asked, reached = [], [], []

            async def echo(reader, writer):
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
                writer.close()

            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]

            async def resolver(name, wanted):
                asked.append((name, wanted))
                return list(addresses)

            async def connect(address, wanted):
                reached.append((address, wanted))
                return await asyncio.open_connection("127.0.0.1", port)

            from orchestrator.gate.grants import Grant

            grant = Grant("g", helpers.terms(egress=[PLACE], **terms))
            egress = EgressSocket(gate_root, grant, on_end=ended.append, resolver=resolver, connect=connect)
            await egress.open()

            async def client(request=REQUEST):
                reader, writer = await asyncio.open_unix_connection(str(gate_root / "egress.sock"))
                writer.write(request)
                return reader, writer

            kit = type(
                "Kit",
                (),
                {
                    "grant": grant,
                    "egress": egress,
                    "client": staticmethod(client),
                    "ended": ended,
                    "asked": asked,
                    "reached": reached,
                },
            )
            try:
                async with asyncio.timeout(60):
                    await test(kit)
            finally:
                await egress.close()
                server.close()
                await server.wait_closed()

        asyncio.run(body())

    return run


async def answer_of(kit, request):
    reader, writer = await kit.client(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_what_is_listed_passes_both_ways_and_is_counted_and_logged(proxy, helpers):
    async def test(kit):
        reader, writer = await kit.client()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await helpers.until(lambda: kit.ended)
        entry = kit.ended[0].log_entry()
        assert (entry["route"], entry["address"], entry["bead"]) == (f"CONNECT {PLACE}", PUBLIC, "bead-1")
        assert (entry["bytes_up"], entry["bytes_down"], entry["code"]) == (5, 5, None)
        assert kit.grant.egress_used == 10
        assert kit.reached == [(PUBLIC, 443)]

    proxy(test)


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT other.example.org:443", "CONNECT files.example.org:80", "CONNECT files.example.org.:443", "CONNECT a.files.example.org:443",
        "CONNECT files.example.org", "CONNECT files.example.org:443@evil.example:443", f"CONNECT {PUBLIC}:443", "CONNECT [::1]:443", "CONNECT 127.1:443",
        "CONNECT 2130706433:443", "CONNECT 0x7f.1:443", "CONNECT localhost:443", "GET http://files.example.org:443/", "POST /v1/chat/completions",
        "connect files.example.org:443", "CONNECT  files.example.org:443", "CONNECT files.example.org:99999",
    ],
)  # fmt: skip
def test_anything_else_is_refused_and_never_resolved(proxy, line):
    async def test(kit):
        answer = await answer_of(kit, f"{line} HTTP/1.1\r\nHost: {PLACE}\r\n\r\n".encode())
        assert answer.split(b" ")[1] in {b"400", b"403"}
        assert kit.asked == []

    proxy(test)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0",  # noqa: S104
        "10.0.0.1", "172.17.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "64:ff9b:1::1",
        "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1",
        "::ffff:169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:db8::1", "nonsense", "",
    ],
)  # fmt: skip
def test_a_name_that_leads_to_a_special_address_is_refused_after_it_was_resolved(proxy, address):
    async def test(kit):
        answer = await answer_of(kit, f"CONNECT {PLACE} HTTP/1.1\r\n\r\n".encode())
        assert b"address_not_public" in answer
        assert kit.reached == []

    assert not public(address)
    proxy(test, addresses=(address,))
    proxy(test, addresses=(PUBLIC, address))  # also among good ones


@pytest.mark.parametrize("address", [PUBLIC, "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are(address):
    assert public(address)


def test_bytes_are_bounded_over_all_connections(proxy):
    async def test(kit):
        reader, writer = await kit.client()
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * 5000)
        got = b""
        while chunk := await reader.read(65536):
            got += chunk
        writer.close()
        assert len(got) <= 1000
        assert b"egress_bytes_spent" in await answer_of(kit, f"CONNECT {PLACE} HTTP/1.1\r\n\r\n".encode())

    proxy(test, egress_bytes=1000)


def test_a_revoked_or_expired_grant_leads_nowhere(proxy):
    async def test(kit):
        kit.grant.revoked = True
        assert b"revoked" in await answer_of(kit, f"CONNECT {PLACE} HTTP/1.1\r\n\r\n".encode())

    async def expired(kit):
        assert b"deadline" in await answer_of(kit, f"CONNECT {PLACE} HTTP/1.1\r\n\r\n".encode())

    proxy(test)
    proxy(expired, deadline=1.0)


def test_closing_cuts_what_is_open(proxy):
    async def test(kit):
        reader, writer = await kit.client()
        await reader.readuntil(b"\r\n\r\n")
        await kit.egress.close()
        assert await reader.read() == b""
        writer.close()
        assert kit.ended[0].code == "revoked"

    proxy(test)


def test_a_head_without_end_is_let_go(proxy):
    async def test(kit):
        assert (await answer_of(kit, b"CONNECT " + b"a" * 20_000)).startswith(b"HTTP/1.1 400")

    proxy(test)


def test_the_socket_is_there_only_while_it_is_granted(school, helpers):
    async def test(school):
        path = school.root / "sockets" / "g" / "egress.sock"
        await school.gate.put("g", helpers.terms())
        assert not path.exists()
        await school.gate.put("g", helpers.terms(egress=[PLACE]))
        assert path.exists()
        await school.stop_gate()
        await school.start_gate(school.url)
        assert path.exists()
        await school.gate.put("g", helpers.terms())
        assert not path.exists()

    school(test)


@pytest.mark.parametrize(
    "place",
    [
        "example.org",
        "example.org:0",
        "example.org:70000",
        "*.example.org:443",
        "10.0.0.1:80",
        "::1:80",
        "Example.org:443",
        "localhost:80",
        "a b.c:1",
        "example.org:443\n",
        "example.org:٤٤٣",
    ],
)
def test_a_place_is_a_name_and_a_port(place, helpers):
    assert not valid_place(place)
    with pytest.raises(ValueError, match="egress"):
        helpers.terms(egress=[place])


@given(st.text())
def test_any_text_is_a_place_or_none_and_an_address_or_none(text):
    assert valid_place(text) in {True, False}
    assert public(text) in {True, False}
