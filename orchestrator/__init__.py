"""The agent school: sandboxed students, two judges, a branch bound to their verdicts."""

__version__ = "0.1.0"
