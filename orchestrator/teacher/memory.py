"""What a teacher learned, as bounded context for its next reviews (R-32, R-33).

What a review noted was made from a model's answer about a stranger's work. If its sentences came back into later
prompts, one bead could speak in another's review. So none does: what comes back are the names of kinds of problem,
reduced to a small alphabet, that came up in at least two beads, with numbers; as data, in a fence.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import yaml

from orchestrator.bookbag import files
from orchestrator.errors import BookbagCorruptError
from orchestrator.teacher.sleep import CONSOLIDATED, FAILED_ENTRY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CONTEXT_LIMIT: Final = 1500  # characters
KINDS_SHOWN: Final = 15
BEADS_NEEDED: Final = 2
_ARTIFACT_LIMIT: Final = 1 << 20  # bytes
_PATTERN: Final = re.compile(r"(.*) x(\d{1,6})", re.DOTALL)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Memory:
    """What the last consolidated sessions and the running one say of kinds of problem. Used from several threads."""

    def __init__(self, folder: Path, session_id: str) -> None:
        """Nothing is read yet: waking up is quick, and the first review pays."""
        self._folder = folder / CONSOLIDATED
        self._own = f"{session_id}"
        self._lock = threading.Lock()
        self._past: dict[str, tuple[int, int]] | None = None

    def context(self, history: Sequence[Mapping[str, Any]]) -> str:
        """Return the text for a prompt, at most CONTEXT_LIMIT characters; "" when nothing was learned yet."""
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for name, (seen, failed) in self._earlier().items():
            counts[name][0] += seen
            counts[name][1] += failed
        for entry in history:
            for name in {kind_name(kind) for kind in entry.get("issue_classes") or ()} - {""}:
                counts[name][0] += 1
                counts[name][1] += entry.get("verdict") == "FAIL"
        known = sorted(
            ((name, seen, failed) for name, (seen, failed) in counts.items() if seen >= BEADS_NEEDED),
            key=lambda item: (-item[2], -item[1], item[0]),
        )
        lines = [f"{name}: in {seen} beads, {failed} of them failed" for name, seen, failed in known[:KINDS_SHOWN]]
        return "\n".join(lines)[:CONTEXT_LIMIT]

    def _earlier(self) -> dict[str, tuple[int, int]]:
        """Return kind -> (beads, failed beads) of the sessions before this one, read once."""
        with self._lock:
            if self._past is None:
                counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
                for name in files.names_in(str(self._folder), ".yaml"):
                    if name != self._own:
                        _add(counts, self._read(name))
                self._past = {name: (seen, failed) for name, (seen, failed) in counts.items()}
            return self._past

    def _read(self, name: str) -> dict[str, Any]:
        """Return an artifact; an unreadable one taught nothing."""
        try:
            raw = files.read_file(str(self._folder), f"{name}.yaml", limit=_ARTIFACT_LIMIT)
            found = yaml.load(raw or b"", Loader=_LOADER)  # noqa: S506 - a safe loader, in C where there is one
        except (BookbagCorruptError, OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def kind_name(text: object) -> str:
    """Return the name of a kind of problem in a small alphabet, or "" when nothing of it can be a name."""
    if not isinstance(text, str):
        return ""
    name = re.sub(r"[^a-z0-9]+", "_", text[:80].lower()).strip("_")
    return name if 2 <= len(name) <= 40 and name.count("_") <= 4 else ""


def _add(counts: dict[str, list[int]], artifact: dict[str, Any]) -> None:
    for line in _texts(artifact.get("patterns_observed")):
        match = _PATTERN.fullmatch(line)
        if match and (name := kind_name(match[1])):
            counts[name][0] += int(match[2])
    for line in _texts(artifact.get("failed_approaches")):
        match = FAILED_ENTRY.fullmatch(line)
        for kind in match["kinds"].split(", ") if match else ():
            if name := kind_name(kind):
                counts[name][1] += 1


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
