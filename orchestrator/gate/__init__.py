"""The gate: the only way from a student or a teacher to a model (DESIGN, "The gate: a student has no network").

Runs in a container of its own as ``python3 -m orchestrator.gate``. One Unix socket per grant; the socket is the
identity. Behind it the model routes and nothing else, with the grant's own key added here.
"""
