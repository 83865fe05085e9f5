"""Gate, OmniRoute and rehearsal together (R-54, R-56)."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter

import pytest
import requests

from orchestrator.engine.base import LABEL_HOME, Kind
from orchestrator.gateway.configure import configure
from orchestrator.gateway.gate_client import UnixConnection
from orchestrator.gateway.grants import close_grant, ensure_grant, key_name, open_grant
from orchestrator.gateway.providers import probe_aliases

pytestmark = [pytest.mark.engine, pytest.mark.standing]

ALIAS = "auto/coding:reliable"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = [{"role": "user", "content": "School-Role: searcher\nWhat is here?"}]
BODIES = {
    CHAT: {"messages": USER},
    RESPONSES: {"input": "School-Role: searcher\nWhat is here?"},
    MESSAGES: {"messages": USER, "max_tokens": 100},
}


def call(folder, path, body, method="POST"):
    with contextlib.closing(UnixConnection(folder / "gate.sock", timeout=60)) as connection:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def opened(parts, bead, models=(ALIAS,), limits=None):
    return open_grant(
        parts.home,
        parts.omniroute,
        parts.gate,
        parts.config(),
        bead,
        models=models,
        limits=limits or {},
        deadline=time.time() + 300,
    )


def eventually(condition, seconds=30):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.1)


def test_omniroute_keeps_strangers_out(parts):
    parts.omniroute.prove_auth()


def test_configuring_it_again_changes_nothing(parts):
    assert any("adding provider rehearsal" in change for change in parts.changes)
    again = []
    configure(parts.omniroute, parts.config(), say=again.append)
    assert again == []


def test_each_call_is_in_omniroutes_log_under_the_beads_own_key_and_equals_the_gates(parts):
    grant = opened(parts, "bead-log")
    for path, body in BODIES.items():
        for stream in (False, True):
            status, text = call(grant.folder, path, {"model": ALIAS, "stream": stream, **body})
            assert status == 200, text
            assert "scripted" in text
    eventually(lambda: len(parts.omniroute.call_log(grant.key_name)) >= 6)
    theirs = parts.omniroute.call_log(grant.key_name)
    ours = parts.gate.log(bead="bead-log")
    assert len(ours) == 6
    assert Counter((entry["path"], entry["tokens"]["in"], entry["tokens"]["out"]) for entry in theirs) == Counter(
        (entry["route"], entry["prompt_tokens"], entry["completion_tokens"]) for entry in ours
    )
    usage = close_grant(parts.home, parts.omniroute, parts.gate, "bead-log")
    assert usage["calls"] == 6
    assert usage["prompt_tokens"] == sum(entry["tokens"]["in"] for entry in theirs)
    assert usage["completion_tokens"] == sum(entry["tokens"]["out"] for entry in theirs)
    assert (usage["cost_usd"], usage["rehearsal"], usage["unmetered"]) == (0.0, True, 0)


def test_tokens_can_be_counted_beforehand_and_models_are_the_grants_own(parts):
    grant = opened(parts, "bead-count")
    status, text = call(grant.folder, "/v1/messages/count_tokens", {"model": ALIAS, "messages": USER})
    assert status == 200
    assert json.loads(text)["input_tokens"] > 0
    status, text = call(grant.folder, "/v1/models", None, method="GET")
    assert [model["id"] for model in json.loads(text)["data"]] == [ALIAS]
    close_grant(parts.home, parts.omniroute, parts.gate, "bead-count")


def test_a_model_outside_the_grant_is_refused_by_the_gate_and_by_the_key(parts):
    grant = opened(parts, "bead-model")
    assert call(grant.folder, CHAT, {"model": "rehearsal", **BODIES[CHAT]})[0] == 403
    key = parts.omniroute.create_key("school-test-allowed", models=[ALIAS])
    assert _direct(parts, key.secret, ALIAS) == 200
    assert _direct(parts, key.secret, "rehearsal") == 403
    parts.omniroute.revoke_key(key)
    close_grant(parts.home, parts.omniroute, parts.gate, "bead-model")


def _direct(parts, secret, model):
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
    # never twice the same words, so that no cache can answer
    body = {"model": model, "messages": [{"role": "user", "content": f"hello {time.time_ns()}"}], "stream": False}
    return requests.post(parts.omniroute.url + CHAT, json=body, headers=headers, timeout=60).status_code


def test_a_used_key_is_refused_at_once_when_it_is_revoked_and_stays_refused(parts):
    # Deleting it at this moment would bring it back to life for a minute: OmniRoute's caches.
    key = parts.omniroute.create_key("school-test-revoked")
    assert _direct(parts, key.secret, ALIAS) == 200
    parts.omniroute.revoke_key(next(found for found in parts.omniroute.keys("school-test-revoked")))
    for _ in range(3):
        assert _direct(parts, key.secret, ALIAS) in (401, 403)
        parts.omniroute.sweep_keys("school-test-revoked")
        time.sleep(0.5)


def test_closing_a_grant_ends_its_socket_and_its_key(parts):
    grant = opened(parts, "bead-closed")
    assert call(grant.folder, CHAT, {"model": ALIAS, **BODIES[CHAT]})[0] == 200
    close_grant(parts.home, parts.omniroute, parts.gate, "bead-closed")
    assert not grant.folder.exists()
    assert [key.active for key in parts.omniroute.keys(key_name(parts.home, "bead-closed"))] == [False]
    # a grant that still stands at the gate when its key is revoked is refused by OmniRoute
    grant = opened(parts, "bead-keyless")
    assert call(grant.folder, CHAT, {"model": ALIAS, **BODIES[CHAT]})[0] == 200
    for key in parts.omniroute.keys(grant.key_name):
        parts.omniroute.revoke_key(key)
    assert call(grant.folder, CHAT, {"model": ALIAS, **BODIES[CHAT]})[0] in (401, 403)
    assert parts.gate.usage("bead-keyless")["last_error"]["status"] in (401, 403)
    close_grant(parts.home, parts.omniroute, parts.gate, "bead-keyless")


def test_a_spent_budget_ends_the_bead_in_mid_run(parts):
    grant = opened(parts, "bead-budget", limits={"calls": 2})
    statuses = [call(grant.folder, CHAT, {"model": ALIAS, **BODIES[CHAT]})[0] for _ in range(3)]
    assert statuses == [200, 200, 403]
    assert close_grant(parts.home, parts.omniroute, parts.gate, "bead-budget")["stopped"] == "calls"


def test_every_alias_answers_and_shows_that_it_is_rehearsed(parts):
    found = probe_aliases(parts.home, parts.omniroute, parts.gate, parts.config())
    assert {test.alias for test in found} == {"auto/coding:reliable", "auto/review", "auto/best-free", "rehearsal"}
    assert [test for test in found if not test.ok or not test.rehearsed] == []


def test_one_beads_error_shuts_nobody_out_for_long(parts):
    grant = opened(parts, "bead-error", limits={})
    error = {"model": ALIAS, "messages": [{"role": "user", "content": "School-Role: coder\n[rehearse: http-500]"}]}
    assert call(grant.folder, CHAT, error)[0] >= 500
    eventually(lambda: call(grant.folder, CHAT, {"model": ALIAS, **BODIES[CHAT]})[0] == 200, seconds=10)
    close_grant(parts.home, parts.omniroute, parts.gate, "bead-error")


def test_a_scripted_fault_is_seen_and_not_retried_away(parts):
    grant = opened(parts, "bead-fault")
    fault = {"model": ALIAS, "messages": [{"role": "user", "content": "School-Role: coder\n[rehearse: http-503 1]"}]}
    assert call(grant.folder, CHAT, fault)[0] == 503
    eventually(lambda: call(grant.folder, CHAT, fault)[0] == 200, seconds=10)
    close_grant(parts.home, parts.omniroute, parts.gate, "bead-fault")


def test_grants_outlive_the_gates_end(parts):
    ensure_grant(parts.home, parts.omniroute, parts.gate, parts.config(), "teacher-cto", models=["auto/review"])
    folder = parts.gate.folder("teacher-cto")
    body = {"model": "auto/review", **BODIES[CHAT]}
    assert call(folder, CHAT, body)[0] == 200
    gate = parts.engine.list({LABEL_HOME: parts.home.id, "school.kind": Kind.GATE})[0]
    parts.engine.kill(gate.id)
    eventually(lambda: parts.engine.inspect(gate.id).state != "running")
    parts.engine.start(gate.id)

    def again():
        with contextlib.suppress(OSError):
            return call(folder, CHAT, body)[0] == 200
        return False

    eventually(again)
    assert parts.gate.usage("teacher-cto")["calls"] == 2
    close_grant(parts.home, parts.omniroute, parts.gate, "teacher-cto")


def test_no_secret_shows_in_what_the_engine_tells_of_the_parts(parts):
    import docker

    secrets = [path.read_text().strip() for path in (parts.home.keys / "omniroute").iterdir()]
    assert len(secrets) == 4
    client = docker.DockerClient(base_url=parts.engine.info().endpoint)
    try:
        for container in parts.engine.list({LABEL_HOME: parts.home.id}):
            inspected = json.dumps(client.api.inspect_container(container.id))
            output = parts.engine.logs(container.id).decode(errors="replace")
            assert not any(secret in inspected or secret in output for secret in secrets)
    finally:
        client.close()
