"""Grants from the host's side: a real gate process, a stand-in for the makers of keys."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError, GatewayError, GatewayUnavailableError
from orchestrator.gateway.config import load_config
from orchestrator.gateway.gate_client import GateClient
from orchestrator.gateway.grants import SharedKey, close_grant, ensure_grant, key_name, open_grant
from orchestrator.gateway.omniroute import ApiKey
from orchestrator.gateway.providers import add_provider
from orchestrator.home import Home

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "config" / "gateway.yaml"


class MemoryKeys:
    """Makes keys in memory."""

    def __init__(self):
        self.made = {}
        self.broken = False

    def create_key(self, name, *, models=(), daily_usd=None):
        key = ApiKey(str(len(self.made)), name, active=True, last_used=time.time(), secret=f"sk-{len(self.made)}")
        self.made[key.id] = key
        return key

    def keys(self, prefix=""):
        return [key for key in self.made.values() if key.name.startswith(prefix)]

    def revoke_key(self, key):
        if self.broken:
            raise GatewayError("broken")
        self.made[key.id] = ApiKey(key.id, key.name, active=False, last_used=key.last_used)

    def sweep_keys(self, prefix):
        return 0

    def active(self):
        return [key.name for key in self.made.values() if key.active]


@pytest.fixture
def home():
    # deep on purpose: longer than a socket's path may be
    with tempfile.TemporaryDirectory(prefix="school") as folder:
        root = Path(folder) / ("deep-" * 20) / "home"
        yield Home(root, root / "bookbag", root / "signals", root / "locks").ensure()


@pytest.fixture
def gate(home):
    env = os.environ | {"SCHOOL_GATE_ROOT": str(home.gate), "SCHOOL_UPSTREAM": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "orchestrator.gate"]
    with subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.PIPE) as process:
        assert b"serves" in process.stderr.readline()
        yield GateClient(home)
        process.terminate()
        process.wait(20)


def opened(home, keys, gate, bead="bead-1", **changes):
    terms = {"models": ["auto/coding:reliable"], "limits": {"calls": 5}, "deadline": time.time() + 60}
    return open_grant(home, keys, gate, load_config(SHIPPED, home), bead, **(terms | changes))


def test_a_grant_opens_and_closes_with_its_key(home, gate):
    keys = MemoryKeys()
    grant = opened(home, keys, gate)
    assert (grant.folder / "gate.sock").is_socket()
    assert keys.active() == [grant.key_name] == [key_name(home, "bead-1")]
    terms = gate.usage("bead-1")["terms"]
    assert (terms["kind"], terms["bead"], terms["limits"]["calls"]) == ("student", "bead-1", 5)
    assert terms["rehearsal_models"] == ["auto/coding:reliable"]
    first = close_grant(home, keys, gate, "bead-1")
    assert first["calls"] == 0
    assert close_grant(home, keys, gate, "bead-1") == first
    assert keys.active() == []
    assert not grant.folder.exists()


def test_closing_what_was_never_opened_is_harmless(home, gate):
    assert close_grant(home, MemoryKeys(), gate, "bead-1") is None


def test_opening_again_after_a_crash_leaves_one_key(home, gate):
    keys = MemoryKeys()
    opened(home, keys, gate)
    opened(home, keys, gate)
    opened(home, keys, gate, bead="bead-10")  # a name that the other one begins
    close_grant(home, keys, gate, "bead-1")
    assert keys.active() == [key_name(home, "bead-10")]


def test_a_key_that_the_gate_did_not_take_is_revoked(home):
    keys = MemoryKeys()
    with pytest.raises(GatewayUnavailableError, match="does not answer"):
        opened(home, keys, GateClient(home))
    assert keys.active() == []


def test_the_key_is_revoked_although_the_gate_is_gone(home):
    keys = MemoryKeys()
    keys.create_key(key_name(home, "bead-1"))
    with pytest.raises(GatewayUnavailableError):
        close_grant(home, keys, GateClient(home), "bead-1")
    assert keys.active() == []


def test_the_gate_is_closed_although_the_key_can_not_be_revoked(home, gate):
    keys = MemoryKeys()
    opened(home, keys, gate)
    keys.broken = True
    with pytest.raises(GatewayError, match="broken"):
        close_grant(home, keys, gate, "bead-1")
    assert gate.grants() == []


def test_an_unknown_alias_is_refused_before_a_key_is_made(home, gate):
    keys = MemoryKeys()
    with pytest.raises(ConfigError, match="no model alias"):
        opened(home, keys, gate, models=["gpt"])
    assert keys.made == {}


def test_terms_that_the_gate_refuses_are_an_error_with_its_words(home, gate):
    with pytest.raises(GatewayError, match="calls must be a whole number"):
        opened(home, SharedKey("sk-all"), gate, limits={"calls": 1.5})


def test_a_teachers_grant_is_renewed_only_when_something_changed(home, gate):
    keys = MemoryKeys()

    def ensure():
        ensure_grant(home, keys, gate, load_config(SHIPPED, home), "teacher-cto", models=["auto/review"])

    ensure()
    ensure()
    assert len(keys.made) == 1
    add_provider(home, SHIPPED, "openai", models=["a"], price="1/2")
    ensure()
    assert len(keys.made) == 2
    assert gate.usage("teacher-cto")["terms"]["prices"] == {"auto/review": {"input": 1.0, "output": 2.0}}
    keys.revoke_key(keys.made["1"])  # as when OmniRoute's volume was lost
    ensure()
    assert keys.active() == [key_name(home, "teacher-cto")]


def test_the_log_and_health_can_be_read(home, gate):
    assert gate.health()["ok"] is True
    assert gate.log(bead="bead-1") == []
    assert gate.usage("nobody") is None
