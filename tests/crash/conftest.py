"""What a crash may leave, looked for everywhere; and principals that die where they are told to."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.engine.base import LABEL_BEAD, LABEL_DEADLINE, LABEL_HOME, LABEL_KIND, ContainerSpec, Kind
from orchestrator.gateway.gate_client import GateClient
from orchestrator.principal.bring_up import gateway_of
from orchestrator.principal.janitor import lock_path
from orchestrator.principal.lease import Lease, held
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.sample import make_sample
from orchestrator.sandbox.outcome import Outcome

HARNESS = Path(__file__).with_name("harness.py")
TASK = "[rehearse: write made.txt]"


def until(condition, seconds=60.0, pause=0.05):
    """Wait until the condition holds and return what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(pause)
    return found


class Crashes:
    """A school, a repository, and what is left of beads in both."""

    def __init__(self, school, engine, repo):
        self.school, self.engine, self.repo = school, engine, repo
        self.home = school.home
        self.gate = GateClient(school.home)

    until = staticmethod(until)

    @staticmethod
    def kill(process):
        """SIGKILL a principal and reap it."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    # -- beads ---------------------------------------------------------------------------------------------------

    @staticmethod
    def bead():
        return f"coder-crash-{secrets.token_hex(4)}"

    def request(self, bead, **more):
        given = {"repo": str(self.repo), "task": TASK, "bead": bead, "agent": "light", "model": "rehearsal"}
        return {**given, "verify": "true", "timeout": 60, **more}

    @contextlib.contextmanager
    def nobody_recovers(self):
        """For the block neither janitor nor sweep touches a bead: the janitor's place is taken by one that sleeps."""
        lease = until(lambda: Lease.take(lock_path(self.home.leases)), 30)
        try:
            yield
        finally:
            lease.release()

    def drive_all(self, jobs, **env):
        """Drive beads, each until it dies at its point; return how each principal ended."""
        with self.nobody_recovers():
            return self.drive_guarded(jobs, **env)

    def drive_guarded(self, jobs, **env):
        """As ``drive_all``, with the janitor that each spawn brings."""
        lines = "".join(
            json.dumps({"request": self.request(bead, **more), "at": at, "after": after}) + "\n"
            for bead, at, after, more in (job if len(job) == 4 else (*job[:2], 0, job[2]) for job in jobs)
        )
        done = subprocess.run(
            [sys.executable, str(HARNESS)], input=lines, text=True, check=False, stdout=subprocess.PIPE,
            env={**self.school.env, **env}, timeout=3600,
        )  # fmt: skip
        ended = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(ended) == len(jobs), done
        return {found["bead"]: found["ended"] for found in ended}

    def why(self, bead):
        """How a bead ended, in words, for an assertion's message."""
        row = self.row(bead)
        return row and (row["outcome"], row["data"].get("reason"), row["data"].get("report", {}).get("diagnostics"))

    def start(self, bead, **more):
        """Start one principal in a session of its own."""
        request = self.request(bead, **{k: v for k, v in more.items() if not k.isupper()})
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.principal.detached"], stdin=subprocess.PIPE, start_new_session=True,
            env={**self.school.env, "SCHOOL_JANITOR": "false", **{k: v for k, v in more.items() if k.isupper()}},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        return process

    def running(self, bead, kind=Kind.LEAF):
        """Wait until a bead's container runs and return it."""
        labels = {LABEL_HOME: self.home.id, LABEL_BEAD: bead, LABEL_KIND: kind}
        return until(lambda: [c for c in self.engine.list(labels) if c.state == "running"])[0]

    def row(self, bead):
        with Ledger(self.home.ledger) as ledger:
            return ledger.bead(bead)

    def events(self, bead):
        with Ledger(self.home.ledger) as ledger:
            return ledger.events(bead)

    def scored(self, bead):
        with contextlib.closing(sqlite3.connect(self.home.ledger)) as database:
            return database.execute("SELECT count(*) FROM score_changes WHERE bead=?", (bead,)).fetchone()[0]

    def git(self, *arguments):
        return subprocess.run(
            ["git", "-C", str(self.repo), *arguments], check=False, capture_output=True, text=True
        ).stdout.strip()

    def ref(self, bead):
        return self.git("rev-parse", "--verify", "--quiet", f"refs/school/{bead}")

    # -- what is left --------------------------------------------------------------------------------------------

    def left(self, bead):
        """Everything a bead may leave behind, as sentences; and what its record must be."""
        found = [f"container {c.name}" for c in self.engine.list({LABEL_HOME: self.home.id, LABEL_BEAD: bead})]
        found += [f"folder {p.name}" for p in self.home.leaves.iterdir() if p.name.startswith(bead)]
        found += [f"socket {p.name}" for p in (self.home.gate / "sockets").glob(f"{bead}*")]
        found += [f"grant {g['grant']}" for g in self.gate.grants() if g["grant"] == bead]
        found += [f"lease {p.name}" for p in self.home.leases.glob(f"*{bead}*")]
        found += [f"lock {p.name}" for p in self.home.locks.glob(f"{bead}*")]
        found += [f"flag {p.name}" for p in self.home.signals.glob(f"{bead}*")]
        row = self.row(bead)
        if row is None:
            return [*found, "no row"]
        if row["status"] != "ended" or row["cleanup"] != "done":
            found.append(f"row {row['status']} {row['cleanup']}")
        outcome = Outcome(row["outcome"])
        if outcome is not Outcome.NOT_REVIEWED and (self.home.bookbags / f"{bead}.json").exists():
            found.append("bookbag not archived")
        if outcome in {Outcome.ACCEPTED, Outcome.REJECTED} and not (self.home.archive / f"{bead}.json").exists():
            found.append("no archived bookbag")
        return found

    def left_anywhere(self):
        """What no single bead is to blame for."""
        with contextlib.closing(gateway_of(self.engine, self.home)) as gateway:
            keys = [key.name for key in gateway.keys(f"school-{self.home.id}-") if key.active]
        found = [f"live key {name}" for name in keys if "-teacher-" not in name]
        found += [f"git entry {p.name}" for p in (self.repo / ".git" / "worktrees").glob("*")]
        if self.git("worktree", "list", "--porcelain").count("worktree ") != 1:
            found.append("git worktree")
        found += [f"pack {p.name}" for p in (self.repo / ".git" / "objects" / "pack").glob("tmp*")]
        found += [f"probe folder {p.name}" for p in self.home.school.glob("p-*")]
        locks = [p for p in self.home.leases.iterdir() if p.suffix == ".lock" and held(p)]
        found += [f"held {p.name}" for p in locks if not p.name.startswith(("janitor", "part-"))]
        for folder in (self.home.bookbags, self.home.signals, self.home.locks, self.home.archive):
            found += [f"temporary {p.name}" for p in folder.glob(".*")]
        return found

    # -- who recovers --------------------------------------------------------------------------------------------

    def janitor(self, seconds=300.0):
        """Run a janitor until nothing is left to guard, or wait for the one that is there."""
        done = self.school.run("janitor", timeout=seconds)
        assert done.returncode == 0, done.stderr
        until(lambda: not held(lock_path(self.home.leases)), seconds)

    def sweep(self):
        """One sweep, as a spawn makes it without a janitor."""
        program = (
            "from orchestrator.principal.recovery import Sweeper\n"
            "from orchestrator.principal.school import open_school\n"
            "with open_school(print) as s: print(Sweeper(s, s.ledger).sweep(all_beads=True))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], env=self.school.env, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def crashes(school, engine, tmp_path_factory):
    """The session's school with a repository for crashes."""
    return Crashes(school, engine, make_sample(tmp_path_factory.mktemp("crash") / "sample"))


@pytest.fixture(scope="session")
def bystanders(engine, school, image):
    """Containers that are nobody's or another home's, one with an overdue deadline; alive and well at the end."""
    base = image("base")
    other = f"other-{secrets.token_hex(4)}"
    labels = [
        {},
        {LABEL_HOME: other, LABEL_KIND: Kind.LEAF, LABEL_BEAD: "coder-general-0000000a", LABEL_DEADLINE: "1000000000"},
        {LABEL_HOME: school.home.id + "x", LABEL_KIND: Kind.LEAF, LABEL_BEAD: "coder-general-0000000b"},
    ]
    made = []
    for number, found in enumerate(labels):
        spec = ContainerSpec(
            image=base, name=f"bystander-{other}-{number}", labels=found, entrypoint=("sleep", "3600"), stop_timeout=1
        )
        made.append(engine.create(spec))
        engine.start(made[-1])
    yield made
    states = [engine.inspect(container).state for container in made]
    for container in made:
        engine.remove(container)
    assert states == ["running"] * len(made)
