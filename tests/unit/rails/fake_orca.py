"""A stand-in for Orca's command line: worktrees made by git, in a folder of its own; JSON as documented.

FAKE_ORCA names the folder: `state.json`, `calls.jsonl`, and `mode` (down, rm-fails, rm-forgets, garbage).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

folder = Path(os.environ["FAKE_ORCA"])
mode = (folder / "mode").read_text().strip() if (folder / "mode").exists() else ""
arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
state_file = folder / "state.json"
state = json.loads(state_file.read_text()) if state_file.exists() else {"repos": [], "worktrees": [], "automations": []}
with (folder / "calls.jsonl").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\n")


def option(name):
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def answer(**result):
    state_file.write_text(json.dumps(state))
    print(json.dumps({"ok": True, "result": result, "_meta": {"runtimeId": "r-1"}}))
    sys.exit(0)


def fail(code, message):
    print(json.dumps({"ok": False, "error": {"code": code, "message": message}}))
    sys.exit(1)


if mode == "garbage":
    print("Welcome to Orca")
    sys.exit(0)
if mode == "down":
    fail("runtime_unavailable", "Orca is not running")
match arguments[:2]:
    case ["status", *_]:
        answer(runtime={"reachable": True})
    case ["repo", "list"]:
        answer(repos=state["repos"])
    case ["repo", "add"]:
        state["repos"].append({"id": f"repo-{len(state['repos'])}", "path": option("--path")})
        answer(repo=state["repos"][-1])
    case ["worktree", "list"]:
        answer(worktrees=state["worktrees"])
    case ["worktree", "create"]:
        repo = next(r for r in state["repos"] if f"id:{r['id']}" == option("--repo"))
        name = option("--name")
        while any(w["displayName"] == name for w in state["worktrees"]):
            name += "-2"
        path = folder / "worktrees" / name
        subprocess.run(["git", "-C", repo["path"], "worktree", "add", "-q", "-b", name, path], check=True)
        state["worktrees"].append(
            {
                "id": f"wt-{name}",
                "path": str(path),
                "branch": f"refs/heads/{name}",
                "displayName": name,
                "repo": repo["path"],
            }
        )
        answer(worktree=state["worktrees"][-1])
    case ["worktree", "rm"]:
        found = [w for w in state["worktrees"] if f"id:{w['id']}" == option("--worktree")]
        if not found:
            fail("not_found", "no such worktree")
        if mode == "rm-fails":
            fail("busy", "a terminal is open in it")
        state["worktrees"].remove(found[0])
        if mode != "rm-forgets":  # it drops its entry and leaves the folder
            shutil.rmtree(found[0]["path"])
            subprocess.run(["git", "-C", found[0]["repo"], "worktree", "prune"], check=True)
        answer()
    case ["terminal", "close"]:
        answer()
    case ["automations", "list"]:
        answer(automations=state["automations"])
    case ["automations", "create"]:
        state["automations"].append({"id": f"auto-{len(state['automations'])}", "name": option("--name")})
        answer(automation=state["automations"][-1])
fail("unknown_command", " ".join(arguments[:2]))
