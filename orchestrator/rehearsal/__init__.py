"""Rehearsal: a scripted model behind OpenAI's chat completions format, for trying a set-up without spending a token.

Runs in a container of its own as ``python3 -m orchestrator.rehearsal``. It says that it is scripted wherever its
words show. What it says is in config/rehearsals/*.yaml and in the home's own ``school/rehearsals``.
"""
