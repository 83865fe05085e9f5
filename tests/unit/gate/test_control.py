"""The control API, and what outlives a restart of the gate."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import GatewayError
from orchestrator.gate.log import CallLog
from orchestrator.gate.state import State

CHAT = "/v1/chat/completions"
BODY = {"kind": "student", "bead": "bead-1", "key": "sk-secret", "models": ["m"], "limits": {"calls": 5}}


def test_a_grant_is_made_changed_used_and_revoked_over_the_control_socket(school, helpers):
    async def test(school):
        control = school.control_client()
        async with control.put("/grants/g", json=BODY) as answer:
            assert (answer.status, await answer.json()) == (201, {"grant": "g", "socket": "sockets/g/gate.sock"})
        async with control.put("/grants/g", json=BODY) as answer:
            assert answer.status == 200
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            assert answer.status == 200
        async with control.get("/grants/g") as answer:
            assert (await answer.json())["calls"] == 1
        async with control.get("/grants") as answer:
            text = await answer.text()
            assert len(json.loads(text)) == 1
            assert "sk-secret" not in text
        async with control.delete("/grants/g") as answer:
            first = await answer.json()
            assert first["calls"] == 1
            assert first["stopped"] is None  # it ended by itself
        async with control.delete("/grants/g") as answer:
            assert (answer.status, await answer.json()) == (200, first)
        async with control.get("/grants/never") as answer:
            assert answer.status == 404
        async with control.get("/log?bead=bead-1") as answer:
            entries = await answer.json()
        assert [(entry["route"], entry["model"], entry["status"], entry["prompt_tokens"]) for entry in entries] == [
            (CHAT, "m", 200, 10),
        ]
        async with control.get("/health") as answer:
            assert await answer.json() == {"ok": True, "upstream": school.url, "grants": 0}

    school(test)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("..", {}),
        ("a%2fb", {}),
        ("g", {"kind": "nobody"}),
        ("g", {"key": ""}),
        ("g", {"key": "a\r\nX: b"}),
        ("g", {"bead": None}),
        ("g", {"bead": "../x"}),
        ("g", {"models": "m"}),
        ("g", {"limits": {"calls": -1}}),
        ("g", {"limits": {"calls": 1.5}}),
        ("g", {"limits": {"cost_usd": "1"}}),
        ("g", {"prices": {"m": {"input": True, "output": 1}}}),
    ],
)
def test_malformed_terms_are_refused_without_showing_the_key(school, name, change):
    async def test(school):
        async with school.control_client().put(f"/grants/{name}", json=BODY | change) as answer:
            assert answer.status in (400, 404)
            assert "sk-secret" not in await answer.text()
        assert school.gate.grants() == []

    school(test)


def test_only_the_homes_user_can_open_sockets_and_state(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        private = ["sockets", "sockets/g", "control", "state", "log"]
        for name in private:
            assert stat.S_IMODE((school.root / name).stat().st_mode) == 0o700
        for name in ("sockets/g/gate.sock", "control/control.sock", "state/grants.json"):
            assert stat.S_IMODE((school.root / name).stat().st_mode) == 0o600

    school(test)


def test_grants_and_usage_outlive_a_restart_and_stale_sockets_do_not(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms(limits={"calls": 2}))
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            assert answer.status == 200
        folder = os.open(school.root / "sockets" / "g", os.O_PATH)  # as a container has it mounted
        await school.stop_gate()
        stale = school.root / "sockets" / "teacher-cto"
        stale.mkdir()
        (stale / "gate.sock").touch()
        await school.start_gate(school.url)
        assert list(stale.iterdir()) == []
        assert "gate.sock" in os.listdir(f"/proc/self/fd/{folder}")
        os.close(folder)
        client = school.client()
        for status in (200, 403):
            async with client.post(CHAT, json=helpers.chat()) as answer:
                assert answer.status == status
        usage = school.gate.usage("g")
        assert (usage["calls"], usage["stopped"]) == (2, "calls")
        assert school.upstream.seen[-1][1]["Authorization"] == "Bearer sk-of-the-bead"

    school(test)


def test_usage_is_on_disk_after_each_call_even_when_the_gate_is_killed(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        async with school.client().post(CHAT, json=helpers.chat()) as answer:
            await answer.read()
        file = school.root / "state" / "usage" / "g.json"
        await helpers.until(file.exists)
        assert json.loads(file.read_text())["prompt_tokens"] == 10

    school(test)


def test_a_revoked_grant_leaves_no_key_on_disk(school, helpers):
    async def test(school):
        await school.gate.put("g", helpers.terms())
        await school.gate.delete("g")
        for path in school.root.rglob("*"):
            if path.is_file():
                assert "sk-of-the-bead" not in path.read_text()

    school(test)


def test_a_teachers_folder_stays_where_it_is_mounted(school, helpers):
    async def test(school):
        folder = school.root / "sockets" / "teacher-cto"
        folder.mkdir()
        before = folder.stat().st_ino
        for _ in range(2):
            await school.gate.put("teacher-cto", helpers.terms(kind="teacher", bead=None))
            assert (folder / "gate.sock").is_socket()
            await school.gate.delete("teacher-cto")
        assert folder.stat().st_ino == before
        assert list(folder.iterdir()) == []

    school(test)


def test_a_damaged_file_of_grants_stops_the_start(tmp_path):
    state = State(tmp_path)
    (tmp_path / "grants.json").write_text('{"grants": {"g": {}}}')
    with pytest.raises(GatewayError, match="not a file of grants"):
        state.load()


def test_the_log_rotates_stays_bounded_and_reads_newest_last(tmp_path):
    log = CallLog(tmp_path, size_limit=1000, files_kept=3)
    for number in range(200):
        log.write({"grant": "g", "bead": f"b{number % 2}", "n": number})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
    assert [entry["n"] for entry in log.read(bead="b1", limit=3)] == [195, 197, 199]
    assert log.read(bead="never") == []
    log.close()
    (tmp_path / "calls.jsonl").write_text('{"grant": "g", "n": 200}\n{"grant": "g", "n"')
    log = CallLog(tmp_path, size_limit=1000, files_kept=3)
    assert log.read(limit=1) == [{"grant": "g", "n": 200}]
    log.close()


def test_the_process_serves_reports_health_and_ends_on_sigterm(gate_root):
    env = os.environ | {"SCHOOL_GATE_ROOT": str(gate_root), "SCHOOL_UPSTREAM": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "orchestrator.gate"]
    cwd = Path(__file__).parents[3]
    assert subprocess.run([*command, "health"], env=env, cwd=cwd, check=False).returncode == 1
    with subprocess.Popen(command, env=env, cwd=cwd, stderr=subprocess.PIPE) as gate:
        assert b"The gate serves 0 grants" in gate.stderr.readline()
        assert subprocess.run([*command, "health"], env=env, cwd=cwd, check=False).returncode == 0
        gate.terminate()
        assert gate.wait(20) == 0
    assert subprocess.run([*command, "health"], env=env, cwd=cwd, check=False).returncode == 1
