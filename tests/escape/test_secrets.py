"""Canaries: every secret that there is gets a value that is looked for in everything that a bead leaves behind.

A secret may be in its own zone (the folder of keys, the gate's state, OmniRoute's volume) and nowhere else.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import docker
import pytest

from orchestrator.engine.base import LABEL_HOME

pytestmark = [pytest.mark.engine, pytest.mark.standing]

SEARCH = r"""
env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'; cat /proc/self/mountinfo
git config --list --show-origin; git remote -v; cat .git .git/config /school/git/config 2>/dev/null; git log --all --format='%an %ae %s %b' | head -50
find / -xdev \( -name '*.key' -o -name '*.pem' -o -name 'id_*' -o -name '.netrc' -o -name '.git-credentials' -o -name '.env' -o -name 'config.toml' -o -name '*.db' \) -not -path '/proc/*' 2>/dev/null
grep -rIl CANARY / --exclude-dir=proc --exclude-dir=sys 2>/dev/null
find / -xdev -writable -not -path '/proc/*' -type d 2>/dev/null | head -100
ls -laR /school 2>/dev/null | head -200; ls -la / /root /home /run /var/run 2>&1
ulimit -c; cat /proc/sys/kernel/core_pattern; sleep 100 & kill -SEGV $!; ls core* /tmp/core* 2>/dev/null
echo x > new.txt
sleep 3
"""

_LEFT: list[dict] = []


def files_below(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink()]


def run_with_canaries(school, engine, sample, tmp_path):
    """Plant, run one bead, and collect every text that it leaves, by where."""
    keys = school.home.keys
    canary = {
        name: f"CANARY-{name}-{os.urandom(6).hex()}"
        for name in ("provider-key", "environment", "remote-token", "extra-header", "untracked-dotenv", "key-file")
    }
    git = lambda *arguments: subprocess.run(["git", "-C", str(sample), *arguments], check=True, capture_output=True)  # noqa: E731
    (sample / ".env").write_text(
        "SCHOOL_STUDENT_TIMEOUT=1\nSCHOOL_MAX_BEADS=0\nSCHOOL_HOME=/tmp/steered\nBOOKBAG_DIR=/tmp/steered\nSCHOOL_DEFAULT_AGENT=hermes\nSCHOOL_STUDENT_RUNTIME=evil\n"
    )
    git("add", ".env")
    git("-c", "user.name=u", "-c", "user.email=u@x", "commit", "-q", "-m", "settings")
    (sample / ".env.local").write_text(f"TOKEN={canary['untracked-dotenv']}\n")
    git("remote", "add", "origin", f"https://user:{canary['remote-token']}@git.invalid/x.git")
    git("config", "http.https://git.invalid/.extraHeader", f"AUTHORIZATION: basic {canary['extra-header']}")
    key_file = tmp_path / "provider.key"
    key_file.write_text(canary["key-file"])
    key_file.chmod(0o600)
    environment = {"CANARY_KEY": canary["provider-key"], "AWS_SECRET_ACCESS_KEY": canary["environment"]}
    url = ("--base-url", "http://rehearsal:8080/v1", "--models", "rehearsal")
    texts = {}
    for name, arguments in (("one", ("--key-env", "CANARY_KEY")), ("two", ("--key-file", str(key_file)))):
        done = school.run("gateway", "add", name, *url, *arguments, **environment)
        texts[f"gateway add {name}"] = done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
    client = docker.DockerClient(base_url=engine.info().endpoint)
    try:
        child = school.start(
            "spawn", "--repo", sample, "--agent", "command", "--command", SEARCH, "--verify", "env; cat /proc/*/environ 2>/dev/null; true", "--json", "Look around.",
            **environment,
        )  # fmt: skip
        inspected: dict[str, str] = {}
        processes: dict[str, str] = {}
        grant_keys: set[str] = set()
        while child.poll() is None:
            for summary in client.api.containers(all=True, filters={"label": f"{LABEL_HOME}={school.home.id}"}):
                if summary["Id"] not in inspected:
                    try:
                        inspected[summary["Id"]] = json.dumps(client.api.inspect_container(summary["Id"]))
                    except docker.errors.APIError:
                        continue
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    processes[str(path)] = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                except OSError:
                    continue
            try:
                state = json.loads((school.home.gate / "state" / "grants.json").read_text())
                grant_keys |= {grant["key"] for grant in state["grants"].values()}
            except (OSError, ValueError):
                pass
            time.sleep(0.2)
        stdout, stderr = child.communicate()
        report = json.loads(stdout)
        texts |= {"spawn stdout": stdout, "spawn stderr": stderr}
        texts |= {f"inspect {identity[:12]}": text for identity, text in inspected.items()}
        texts["command lines"] = "\n".join(processes.values())
        for container in client.api.containers(all=True, filters={"label": f"{LABEL_HOME}={school.home.id}"}):
            texts[f"log of {container['Names'][0]}"] = client.api.logs(container["Id"]).decode("utf-8", "replace")
        for image in client.api.images():
            if any((tag or "").startswith("school/") for tag in image.get("RepoTags") or ()):
                texts[f"image {image['RepoTags'][0]}"] = json.dumps(
                    [client.api.inspect_image(image["Id"]), client.api.history(image["Id"])]
                )
        for arguments in (("show", report["bead"]), ("show", report["bead"], "--json"), ("logs", report["bead"]), ("logs", report["bead"], "--json"), ("diff", report["bead"]),
                          ("ps", "--all"), ("status", "--verbose"), ("status", "--json"), ("gateway", "list"), ("gateway", "list", "--json"), ("gateway", "test", "auto/review"),
                          ("spawn", "--repo", "/nonexistent", "x"), ("show", "no-such-bead")):  # fmt: skip
            done = school.run(*arguments, **environment)
            texts["school " + " ".join(arguments)] = done.stdout + done.stderr
    finally:
        for name in ("one", "two"):
            school.run("gateway", "remove", name, **environment)
        client.close()
    for path in files_below(school.home.root):
        texts[f"home: {path.relative_to(school.home.root)}"] = path.read_bytes().decode("latin-1")
    for path in files_below(sample / ".git"):
        if "objects" not in path.parts:
            texts[f"repository: {path.relative_to(sample)}"] = path.read_bytes().decode("latin-1")
    secrets = dict(canary)
    for path in files_below(keys):
        if path.name.endswith(".json"):
            continue
        value = path.read_text().strip()
        if len(value) >= 16:
            secrets[f"keys/{path.relative_to(keys)}"] = value
    secrets |= {f"grant {number}": key for number, key in enumerate(sorted(grant_keys))}
    return {"texts": texts, "secrets": secrets, "report": report, "keys": keys}


@pytest.fixture
def left(request):
    if not _LEFT:
        _LEFT.append(
            run_with_canaries(*(request.getfixturevalue(name) for name in ("school", "engine", "sample", "tmp_path")))
        )
    return _LEFT[0]


OWN_ZONE = ("home: school/keys/", "home: school/gate/state/grants.json", "repository: .git/config")
GROUPS = {
    "secrets-provider-keys": ("provider-key", "key-file"),
    "secrets-principals-environment": ("environment",),
    "secrets-remote-url-token": ("remote-token", "extra-header"),
    "secrets-untracked-files": ("untracked-dotenv",),
    "secrets-seal-keys": ("keys/seal-",),
    "secrets-gateway-secrets": ("keys/omniroute",),
    "secrets-gateway-keys": ("grant ",),
}


def test_a_secret_is_nowhere_but_in_its_own_zone(left, attack_id):
    wanted = {name: value for name, value in left["secrets"].items() if name.startswith(GROUPS[attack_id])}
    assert wanted, sorted(left["secrets"])
    found = [
        (name, where)
        for name, value in wanted.items()
        for where, text in left["texts"].items()
        if value in text and not where.startswith(OWN_ZONE)
    ]
    assert found == []


def test_a_dotenv_of_the_repository_steers_nothing(left):
    assert left["report"]["outcome"] == "accepted", left["report"]["reason"]
    assert left["report"]["agent"] == "command"
    assert not Path("/tmp/steered").exists()


def test_no_core_dump_was_left(left):
    assert [path for path in left["report"]["files_changed"] if "core" in path] == []


def test_everything_was_looked_at(left):
    """The search itself would find a secret: one that is in the student's own words is found in each place for them."""
    places = [where for where, text in left["texts"].items() if "SCHOOL_BEAD=" in text]
    for part in (
        "spawn stdout",
        "inspect ",
        "home: school/ledger.db",
        "home: school/logs/",
        "home: school/archive/",
        "school show",
    ):
        assert any(where.startswith(part) for where in places), (part, places)
    assert any(where.startswith("image school/") for where in left["texts"])
    assert any(where.startswith("log of /school-") for where in left["texts"])
    assert len([name for name in left["secrets"] if name.startswith("keys/seal-")]) == 2


def test_files_with_secrets_are_for_their_owner_alone(left):
    for path in files_below(left["keys"]):
        assert path.stat().st_mode & 0o077 == 0, path
    assert left["keys"].stat().st_mode & 0o077 == 0
