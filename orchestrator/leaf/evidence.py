"""The evidence that the teachers read: diff, changed files whole, their neighbours, the verification's log.

Written once per bead, before the signal, by the principal; a teacher sees it read-only. Every part's digest stands in
``evidence.json`` and the digest of that file goes into each seal, so a verdict is bound to what was read. What does not
fit the budget is named in ``cut``, never dropped silently.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.git.blobs import Blob
    from orchestrator.home import Home

DIFF_BUDGET = 400_000
FILES_BUDGET = 400_000
FILE_BUDGET = 100_000
NEIGHBOURS_BUDGET = 80_000
NEIGHBOUR_BUDGET = 16_000
LOG_BUDGET = 60_000


@dataclass(slots=True)
class EvidenceWriter:
    """Collects the parts of one bead's evidence in its folder."""

    home: Home
    bead: str
    parts: list[dict[str, Any]] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.home.evidence / self.bead

    def begin(self) -> None:
        """Make the folder anew: a bead that is reviewed again is read from what is written now."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.folder, self.folder / "files", self.folder / "neighbours"):
            folder.mkdir(mode=0o700, parents=True)
            self.home.hand_over(folder)

    def part(
        self, name: str, data: bytes, *, path: str | None, limit: int, tail: bool = False, size: int | None = None
    ) -> None:
        """Write one part, cut to ``limit`` bytes at its end (or its beginning, with ``tail``).

        ``size`` is the whole content's size, when ``data`` is only its start.
        """
        whole = len(data) if size is None else size
        truncated = whole > limit
        if truncated:
            self.cut.append(f"{path or name}: {whole} bytes, {'last' if tail else 'first'} {limit} shown")
            data = data[-limit:] if tail else data[:limit]
        target = self.folder / name
        target.write_bytes(data)
        target.chmod(0o600)
        self.home.hand_over(target)
        digest = hashlib.sha256(data).hexdigest()
        self.parts.append({"name": name, "path": path, "sha256": digest, "bytes": len(data), "truncated": truncated})

    def files(self, kind: str, blobs: Mapping[str, Blob], *, budget: int, each: int) -> None:
        """Write files as parts ``<kind>/<n>`` until the budget is spent; binary ones are named only."""
        for number, (path, blob) in enumerate(blobs.items()):
            if b"\0" in blob.data[:8000]:
                self.cut.append(f"{path}: binary, {blob.size} bytes, not shown")
                continue
            if budget <= 0:
                self.cut.append(f"{path}: not shown, the budget for {kind} is spent")
                continue
            limit = min(each, budget)
            self.part(f"{kind}/{number}", blob.data, path=path, limit=limit, size=blob.size)
            budget -= min(blob.size, limit)

    def finish(self, record: dict[str, Any]) -> str:
        """Write ``evidence.json`` and return its digest."""
        data = {"v": 1, "bead": self.bead, **record, "parts": self.parts, "cut": self.cut}
        encoded = json.dumps(data, ensure_ascii=True, indent=1, sort_keys=True).encode("ascii") + b"\n"
        target = self.folder / "evidence.json"
        target.write_bytes(encoded)
        target.chmod(0o600)
        self.home.hand_over(target)
        return hashlib.sha256(encoded).hexdigest()


def write_evidence(
    home: Home,
    bead: str,
    *,
    record: dict[str, Any],
    diff: bytes,
    changed: Sequence[str],
    neighbours: Sequence[str],
    read: Callable[[Sequence[str], int], Mapping[str, Blob]],
    verification_log: bytes,
) -> str:
    """Write a bead's evidence and return its digest.

    Args:
        home: Whose.
        bead: Which.
        record: The fields of ``evidence.json`` besides parts and cut.
        diff: The unified diff from base_sha to head_sha.
        changed: Paths that exist at head_sha and were changed.
        neighbours: Unchanged paths near them, nearest first.
        read: Returns the start of each file at head_sha, at most so many bytes of each: a file may be of any size.
        verification_log: The output of the repository's own check.
    """
    writer = EvidenceWriter(home, bead)
    writer.begin()
    writer.part("diff.patch", diff, path=None, limit=DIFF_BUDGET)
    writer.files("files", read(changed, FILE_BUDGET), budget=FILES_BUDGET, each=FILE_BUDGET)
    writer.files("neighbours", read(neighbours, NEIGHBOUR_BUDGET), budget=NEIGHBOURS_BUDGET, each=NEIGHBOUR_BUDGET)
    if verification_log:
        writer.part("verification.log", verification_log, path=None, limit=LOG_BUDGET, tail=True)
    return writer.finish(record)


def neighbours_of(changed: Sequence[str], tree: Sequence[str], *, limit: int = 12) -> list[str]:
    """Return unchanged files that lie beside the changed ones: same folder, then tests that bear their name."""
    taken = set(changed)
    folders = {path.rpartition("/")[0] for path in changed}
    stems = {path.rpartition("/")[2].partition(".")[0] for path in changed}
    near = [path for path in tree if path not in taken and path.rpartition("/")[0] in folders]
    tests = [
        path
        for path in tree
        if path not in taken
        and path not in near
        and "test" in path.lower()
        and any(stem and stem in path.rpartition("/")[2] for stem in stems)
    ]
    return (tests[: limit // 2] + near)[:limit]
