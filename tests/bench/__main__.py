"""`make bench`: how far the school is from what the engine itself costs, measured side by side in one run.

Ratios, because a machine's speed is not ours to promise: each of our figures is taken in turn with its floor, so that a
busy moment hits both. Nothing here is asserted; the aims stand beside the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES = 2000


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def make_repository(root: Path, files: int) -> Path:
    """Make a repository of many small files in folders of fifty."""
    for number in range(files):
        path = root / f"package_{number // 50:03d}" / f"module_{number:05d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Module {number}."""\n\n' + "".join(f"VALUE_{n} = {n * number}\n" for n in range(30)))
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("-c", "user.name=B", "-c", "user.email=b@x", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)
    return root


class Bench:
    """One engine, one home, one repository."""

    def __init__(self, home_root: Path, rounds: int) -> None:
        from orchestrator.engine.connect import connect
        from orchestrator.git.repository import open_repository
        from orchestrator.home import Home
        from orchestrator.sandbox.images import ensure_images
        from orchestrator.settings import load_settings

        self.rounds = rounds
        self.engine = connect()
        home = Home(home_root, home_root / "bookbag", home_root / "signals", home_root / "locks")
        self.home = home.ensure()
        self.settings = load_settings()
        self.image = ensure_images(self.engine, self.settings, ["student"], lambda line: print(line, file=sys.stderr))[
            "student"
        ]
        self.repo = open_repository(make_repository(home_root / "repository", FILES))

    def leaf(self, number: int, command: str = "true"):
        from orchestrator.leaf.brief import Brief
        from orchestrator.leaf.journal import Silent
        from orchestrator.leaf.student import LeafPlan, StudentLeaf
        from orchestrator.sandbox.spec import Limits

        class Ears(Silent):
            first: float = 0.0

            def agent_event(self, event) -> None:
                self.first = self.first or time.perf_counter()

        bead = f"bench-x-{number:08x}"
        brief = Brief(bead, "coder", "bench", "nothing", "easy", "command", "none", command, limits={"wall_s": 60})
        limits = Limits(wall=60, memory=512 << 20, cpus=2.0, pids=128, disk=1 << 30, tmp=64 << 20)
        plan = LeafPlan(bead, f"study-coder-{number:08x}", self.repo.head_sha, self.image, limits, brief, "", "", None)
        return StudentLeaf(self.home, self.engine, self.repo, plan, Ears(), starting=contextlib.nullcontext)

    def raw(self, number: int) -> tuple[float, float]:
        """The docker SDK alone, same image and the leaf's own spec, `echo`: (create to first output, whole life)."""
        from orchestrator.engine.docker_spec import create_payload  # the same translation as a leaf's

        leaf = self.leaf(number)
        leaf.boot()
        spec = leaf._spec()
        self.engine.remove(leaf._container)
        leaf._container = None
        api = self.client
        spec = dataclasses.replace(spec, name=f"raw-{number}", entrypoint=("echo", "hello"), auto_remove=False)
        started = time.perf_counter()
        container = api.create_container_from_config(create_payload(spec), name=spec.name)["Id"]
        stream = api.attach(container, stdout=True, stream=True, logs=True)
        api.start(container)
        next(iter(stream))
        first = time.perf_counter() - started
        api.wait(container)
        api.remove_container(container, v=True, force=True)
        whole = time.perf_counter() - started
        stream.close()
        leaf.dispose()
        return first, whole

    @property
    def client(self):
        import docker

        if not hasattr(self, "_client"):
            self._client = docker.APIClient(base_url=os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
        return self._client

    def ours(self, number: int) -> tuple[float, float]:
        """A leaf with a no-op command: (boot to the agent's first event, boot to disposed with its result frozen)."""
        leaf = self.leaf(number)
        started = time.perf_counter()
        with leaf:
            leaf.boot()
            leaf.write_brief()
            leaf.run_task()
            leaf.freeze("nothing")
        return leaf._journal.first - started, time.perf_counter() - started

    def worktree(self, number: int) -> float:
        """`git worktree add` and remove, bare: what any tool that makes a worktree pays."""
        target = self.home.root / f"bare-{number}"
        root = str(self.repo.root)
        started = time.perf_counter()
        subprocess.run(
            ["git", "-C", root, "worktree", "add", "--detach", "-q", str(target)], check=True, capture_output=True
        )
        subprocess.run(
            ["git", "-C", root, "worktree", "remove", "--force", str(target)], check=True, capture_output=True
        )
        return time.perf_counter() - started

    def lifecycle(self) -> dict[str, object]:
        raw, ours, trees = [], [], []
        for number in range(self.rounds + 1):
            raw.append(self.raw(2 * number))
            ours.append(self.ours(2 * number + 1))
            trees.append(self.worktree(number))
        raw, ours, trees = raw[1:], ours[1:], trees[1:]  # the first of each warms the caches
        median = statistics.median
        first_raw, life_raw = median(r[0] for r in raw), median(r[1] for r in raw)
        first, life, tree = median(o[0] for o in ours), median(o[1] for o in ours), median(trees)
        return {
            "engine: create to first output of echo (ms)": milliseconds(first_raw),
            "engine: create, start, wait, remove (ms)": milliseconds(life_raw),
            f"git: worktree add and remove, {FILES} files (ms)": milliseconds(tree),
            "leaf: boot to first agent event (ms)": milliseconds(first),
            "leaf: boot to disposed, frozen (ms)": milliseconds(life),
            "ratio: first event / engine (aim 1.15)": round(first / first_raw, 2),
            "ratio: first event / (engine + git worktree add)": round(first / (first_raw + tree / 2), 2),
            "ratio: whole life / engine (aim 1.3)": round(life / life_raw, 2),
            "ratio: whole life / (engine + git worktree)": round(life / (life_raw + tree), 2),
        }


def standing(home_root: Path, calls: int) -> dict[str, object]:
    """Signal to review start, and what the gate adds to a call: on a whole school of its own."""
    env = {**os.environ, "SCHOOL_HOME": str(home_root)}
    subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", "up"], env=env, check=True, stdout=subprocess.DEVNULL
    )
    os.environ["SCHOOL_HOME"] = str(home_root)
    from orchestrator.principal.school import open_school
    from tests.bench.gate import measure
    from tests.bench.measures import review_start

    with open_school(lambda text: None) as school:
        found = review_start(school, calls)
    gate = measure()
    return {
        **found,
        "gate over direct call p50 (ms, aim 2)": round(gate["overhead_p50_ms"], 2),
        "gate p95 (ms)": round(gate["gate_p95_ms"], 2),
        "direct p95 (ms)": round(gate["direct_p95_ms"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("leaf", "school"))
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="school-bench-"))
    found: dict[str, object] = {}
    try:
        if options.only != "school":
            found |= Bench(root / "leaf", options.rounds).lifecycle()
        if options.only != "leaf":
            found |= standing(root / "school", options.calls)
    finally:
        remove(root)
    if options.json:
        print(json.dumps(found))
        return
    width = max(len(name) for name in found)
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")


def remove(root: Path) -> None:
    """Remove what the homes left on the engine and on the disk."""
    from orchestrator.engine.base import LABEL_HOME
    from orchestrator.engine.connect import connect

    engine = connect()
    for mark in root.rglob("home-id"):
        home_id = mark.read_text().strip()
        for container in engine.list({LABEL_HOME: home_id}):
            engine.remove(container.id)
        engine.remove_network(f"school-{home_id}")
        engine.remove_volume(f"school-{home_id}-omniroute-data")
    engine.close()
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
