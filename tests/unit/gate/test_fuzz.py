"""Bytes of any kind on the gate's sockets: it answers with a refusal or closes, reaches nobody, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gate.grants import Limits, Terms

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\n"
SEEDS = (
    CHAT + b'Content-Length: 27\r\n\r\n{"model":"other","x":[1,2]}',
    CHAT + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: gate\r\nConnection: keep-alive\r\n\r\n" * 2,
    b"CONNECT files.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
PIECES = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1",
    b"\xff",
    b"%2e",
    b"../",
    b"-1",
    b"0x10",
)


def mutated(rng):
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at:at] = rng.choice(PIECES)
        elif kind == 1:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 2 and at < len(data):
            data[at] = rng.randrange(256)
        else:
            data[at:at] = data[: rng.randint(0, 40)]
    return bytes(data)


@pytest.mark.parametrize("name", ["gate.sock", "egress.sock"])
def test_mutated_requests(school, helpers, name):
    async def test(school):
        await school.gate.put("g", helpers.terms(egress=["files.example.org:443"]))
        path = str(school.root / "sockets" / "g" / name)
        if name == "egress.sock":  # nothing is resolved here: a name that is right leads nowhere

            async def nowhere(*_):
                raise OSError

            school.gate._egress["g"]._resolve = nowhere
        rng = random.Random(20260101)
        for _ in range(300):
            reader, writer = await asyncio.open_unix_connection(path)
            with contextlib.suppress(ConnectionError):
                writer.write(mutated(rng))
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), 30)
                assert answer == b"" or answer.startswith(b"HTTP/1.")
                assert b"Traceback" not in answer
            writer.close()
        async with school.client().get("/v1/models") as answer:
            assert answer.status == 200
        assert [body for _, _, body in school.upstream.seen if body.get("model") != "m"] == []

    school(test)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["kind", "key", "bead", "models", "limits", "prices", "deadline", "rehearsal_models", "egress", "egress_bytes"]
)


@given(
    VALUES
    | st.dictionaries(
        NAMES,
        VALUES | st.sampled_from(["student", "k", ["m"], {"calls": 1}, {"calls": float("inf")}, ["a.example:443"]]),
    )
)
def test_any_terms_are_terms_or_a_value_error(body):
    try:
        terms = Terms.parse(body)
    except ValueError:
        return
    assert Terms.parse(terms.as_json()) == terms


@given(VALUES | st.dictionaries(st.sampled_from(["calls", "tokens", "cost_usd", "parallel"]), SCALARS))
def test_any_limits_are_limits_or_a_value_error(body):
    with contextlib.suppress(ValueError):
        assert isinstance(Limits.parse(body), Limits)
