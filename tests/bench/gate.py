"""What the gate adds to a call: the same upstream, asked directly and through a gate process. Aim: p50 under 2 ms.

``python -m tests.bench.gate`` prints it; ``measure()`` returns it for `make bench`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
UPSTREAM = """
import asyncio
from aiohttp import web

async def answer(request):
    await request.read()
    return web.json_response({"model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

async def main():
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def _one(session: aiohttp.ClientSession, body: bytes) -> float:
    began = time.perf_counter()
    async with session.post(CHAT, data=body, headers={"Content-Type": "application/json"}) as answer:
        await answer.read()
        assert answer.status == 200, answer.status
    return (time.perf_counter() - began) * 1000


async def _compare(url: str, gate: Path, calls: int, kib: int) -> dict[str, float]:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x " * 512 * kib}]}).encode()
    control = aiohttp.UnixConnector(str(gate / "control" / "control.sock"))
    async with aiohttp.ClientSession("http://gate", connector=control) as session:
        terms = {"kind": "principal", "key": "k", "models": ["m"]}
        async with session.put("/grants/bench", json=terms) as answer:
            answer.raise_for_status()
    connector = aiohttp.UnixConnector(str(gate / "sockets" / "bench" / "gate.sock"))
    times: dict[str, list[float]] = {"direct": [], "gate": []}
    async with (
        aiohttp.ClientSession(url) as direct,
        aiohttp.ClientSession("http://gate", connector=connector) as through,
    ):
        for _ in range(20):
            await _one(direct, body)
            await _one(through, body)
        for _ in range(calls):  # in turn, so that a busy machine is busy for both
            times["direct"].append(await _one(direct, body))
            times["gate"].append(await _one(through, body))
    found = {}
    for name, values in times.items():
        values.sort()
        found |= {f"{name}_p50_ms": values[len(values) // 2], f"{name}_p95_ms": values[int(len(values) * 0.95)]}
    return found | {"overhead_p50_ms": found["gate_p50_ms"] - found["direct_p50_ms"]}


def measure(calls: int = 400, kib: int = 8) -> dict[str, float]:
    """Return p50 and p95 of both ways in ms, and the difference of the p50s. ``kib`` is the size of the prompt."""
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        env = os.environ | {"SCHOOL_GATE_ROOT": folder}
        with subprocess.Popen([sys.executable, "-c", UPSTREAM], stdout=subprocess.PIPE, text=True) as upstream:
            url = f"http://127.0.0.1:{upstream.stdout.readline().strip()}"
            command = [sys.executable, "-m", "orchestrator.gate"]
            gate = subprocess.Popen(command, env=env | {"SCHOOL_UPSTREAM": url}, cwd=ROOT, stderr=subprocess.PIPE)
            with gate:
                gate.stderr.readline()
                try:
                    return asyncio.run(_compare(url, Path(folder), calls, kib))
                finally:
                    gate.terminate()
                    upstream.terminate()


if __name__ == "__main__":
    for size in (2, 8, 50):
        print(size, "KiB", {name: round(value, 2) for name, value in measure(kib=size).items()})
