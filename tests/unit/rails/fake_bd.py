"""A stand-in for bd: a program that keeps beads in a JSON file and speaks the documented JSON. Python only.

FAKE_BD names its folder: `state.json`, `calls.jsonl`, and `mode` (envelope, items, bare, show-list, garbage, slow,
stdout-errors), which is how versions of bd differ.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path

folder = Path(os.environ["FAKE_BD"])
mode = (folder / "mode").read_text().strip() if (folder / "mode").exists() else "envelope"
arguments = sys.argv[1:]
command, rest = arguments[0], arguments[1:]
options = {name: value for name, _, value in (a.partition("=") for a in rest if a.startswith("--"))}
names = [a for a in rest if not a.startswith("-")]

busy = (folder / "busy").open("w")
try:
    fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (folder / "overlapped").touch()
    fcntl.flock(busy, fcntl.LOCK_EX)
with (folder / "calls.jsonl").open("a") as file:
    record = {"argv": arguments, "cwd": str(Path.cwd()), "actor": os.environ.get("BD_ACTOR", "")}
    file.write(json.dumps(record | {"envelope": os.environ.get("BD_JSON_ENVELOPE")}) + "\n")
state_file = folder / "state.json"
beads = json.loads(state_file.read_text()) if state_file.exists() else {}


def fail(text, code=""):
    error = {"schema_version": 1, "error": text} | ({"code": code} if code else {})
    print(json.dumps(error), file=sys.stdout if mode == "stdout-errors" else sys.stderr)
    sys.exit(1)


def answer(value):
    state_file.write_text(json.dumps(beads))
    if mode == "bare":
        print(json.dumps(value))
    elif mode == "items" and isinstance(value, list):
        print(json.dumps({"schema_version": 1, "items": value}))
    elif mode == "items":
        print(json.dumps({"schema_version": 1, **value}))
    else:
        print(json.dumps({"schema_version": 1, "data": value}))
    sys.exit(0)


def bead(name):
    return beads[name] if name in beads else fail(f"issue not found: {name}", "not_found")


def claim(item):
    if item["status"] == "in_progress" and item["assignee"] != options["--actor"]:
        fail(f"issue {item['id']} already claimed by {item['assignee']}")
    if item["status"] not in {"open", "in_progress"}:
        fail(f"issue {item['id']} is {item['status']}, not open")
    item.update(status="in_progress", assignee=options["--actor"])


if mode == "garbage":
    print("Warning: the daemon is not running\nok")
    sys.exit(0)
if mode == "slow":
    time.sleep(60)
if mode == "crash":
    print("panic: runtime error", file=sys.stderr)
    sys.exit(2)
if command == "create":
    name = options.get("--id") or f"bd-{len(beads) + 1:x}"
    if name in beads:
        fail(f"issue {name} exists already", "conflict")
    beads[name] = {
        "id": name,
        "title": options["--title"],
        "description": sys.stdin.read(),
        "status": "open",
        "priority": int(options["--priority"]),
        "issue_type": options["--type"],
        "labels": options["--labels"].split(",") if options.get("--labels") else [],
        "created_at": "2026-01-01T00:00:00Z",
    }
    answer(beads[name])
if command in {"list", "ready"}:
    found = [b for b in beads.values() if b["status"] == "open" or (command == "list" and b["status"] != "closed")]
    if "--all" in options:
        found = list(beads.values())
    found.sort(key=lambda b: b["priority"])
    if "--claim" in options:
        found = found[:1]
        for item in found:
            claim(item)
    answer(found)
if command == "show":
    answer([bead(names[0])] if mode in {"show-list", "bare"} else bead(names[0]))
if command == "update":
    item = bead(names[0])
    if "--claim" in options:
        claim(item)
    for option, field in (("--status", "status"), ("--assignee", "assignee")):
        if option in options:
            item[field] = options[option]
    if "--append-notes" in options:
        item["notes"] = (item.get("notes", "") + "\n" + options["--append-notes"]).strip()
    answer([item])
if command == "close":
    bead(names[0]).update(status="closed", close_reason=options["--reason"])
    answer([bead(names[0])])
fail(f"unknown command {command!r}")
