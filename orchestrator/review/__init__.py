"""How a teacher judges one bead: lenses, evidence, prompt, answer, score, record.

Used inside the teachers' containers and, for the synchronous fallback (R-14), in the principal's process. Standard
library, ``orchestrator.bookbag``, ``orchestrator.errors`` and ``orchestrator.layout`` only.
"""
