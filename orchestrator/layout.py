"""Where things are inside a container. Standard library only: both sides of a mount read this file.

A path here is a contract between the host (which mounts) and the code in a container (which opens).
"""

from __future__ import annotations

# a student leaf
WORKSPACE = "/workspace"  # the worktree, writable
GIT_DIR = "/school/git"  # the leaf's own disposable git dir, writable
OBJECTS = "/school/objects"  # the repository's objects, read-only
INBOX = "/school/inbox"  # brief.json, SOUL.md, INSTRUCTIONS.md, read-only
OUTBOX = "/school/outbox"  # events.jsonl, outcome.json, bookbag.json, writable
HOME = "/home/student"  # tmpfs

# any container that may talk to the gate
GATE_DIR = "/school/gate"  # the folder is mounted, so a restarted gate is found again
GATE_SOCKET = "/school/gate/gate.sock"
EGRESS_SOCKET = "/school/gate/egress.sock"  # there only where a way out is granted
EGRESS_PORT = 20129  # where its proxy is reached inside
RELAY_HOST = "127.0.0.1"
RELAY_PORT = 20128  # OmniRoute's customary port, so that agents' defaults fit
PLACEHOLDER_KEY = "school-no-key-needed"  # for agents that insist on a key; the socket is the identity

# where this package lies in every image of ours: LIB/orchestrator/...
LIB = "/school/lib"
MADE_BY_SETUP = "/opt/school/tree"  # files that a repository's setup made in its tree, and that its .gitignore names
PYTHON = "/school/bin/python3"  # the interpreter of PID 1 in a leaf
HERMES = "/school/hermes"  # the Hermes layer, with its own Python

# files in a leaf's folders
BRIEF_FILE = "brief.json"
SOUL_FILE = "SOUL.md"
INSTRUCTIONS_FILE = "INSTRUCTIONS.md"
EVENTS_FILE = "events.jsonl"
OUTCOME_FILE = "outcome.json"
SUBMISSION_FILE = "bookbag.json"

# a teacher
TEACHER_BOOKBAG = "/school/bookbag"
TEACHER_SIGNALS = "/school/signals"
TEACHER_LOCKS = "/school/locks"
TEACHER_SESSIONS = "/school/sessions"
TEACHER_EVIDENCE = "/school/evidence"
TEACHER_SEAL_KEY = "/school/keys/seal.key"

# the gate (its view of <home>/school/gate)
GATE_ROOT = "/gate"
GATE_CONTROL_SOCKET = "/gate/control/control.sock"

# rehearsal
REHEARSAL_PORT = 8080
REHEARSAL_SCENARIOS = "/school/rehearsals"  # the home's own scenarios, mounted read-only over the shipped ones
