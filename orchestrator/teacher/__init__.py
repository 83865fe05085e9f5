"""A teacher: a process that reviews flagged beads through its lenses until it is told to end (R-17, R-31, R-36).

Runs in a container without network; its configuration is its environment alone. ``python3 -m orchestrator.teacher``.
"""
