"""Keeps grants over a restart of the gate: ``state/grants.json`` and one small usage file per grant, all 0600."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any

from orchestrator.errors import GatewayError
from orchestrator.gate.grants import Grant, Terms, valid_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from orchestrator.gate.day import Day

VERSION = 1
FINAL_KEPT = 500
"""Final usages of revoked grants that are kept, for a principal that died before it wrote them down."""


class State:
    """Reads and writes the state folder. Each write is atomic: a killed gate leaves the old file or the new one."""

    def __init__(self, folder: Path) -> None:
        self._grants_file = folder / "grants.json"
        self._day_file = folder / "day.json"
        self._usage = folder / "usage"
        self._final = folder / "final"
        for path in (folder, self._usage, self._final):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self) -> list[Grant]:
        """Return the grants of the last run with their usage.

        Raises:
            GatewayError: the file of grants can't be read; starting without it would forget what was spent.
        """
        try:
            data = json.loads(self._grants_file.read_text(encoding="utf-8"))
            terms = {name: Terms.parse(body) for name, body in data["grants"].items()}
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GatewayError(
                f"{self._grants_file} is not a file of grants: {error}",
                next_step="Move it away and run `school up`: running beads are then refused at the gate.",
            ) from error
        grants = [Grant(name, body) for name, body in terms.items() if valid_name(name)]
        for grant in grants:
            usage = _read(self._usage / f"{grant.name}.json")
            if usage is not None:
                grant.restore(usage)
        return grants

    def save_grants(self, grants: Iterable[Grant]) -> None:
        """Write down all living grants, their keys included."""
        body = {"v": VERSION, "grants": {grant.name: grant.terms.as_json() for grant in grants}}
        _write(self._grants_file, body, durable=True)

    def save_usage(self, grant: Grant) -> None:
        """Write down one grant's counters. Cheap: done after every call."""
        _write(self._usage / f"{grant.name}.json", grant.usage(), durable=False)

    def save_day(self, day: Day) -> None:
        """Write down the day's counters and limits."""
        _write(self._day_file, day.as_json(), durable=False)

    def restore_day(self, day: Day) -> None:
        """Read them back; what can't be read is no limit and nothing used, until the principal says more."""
        data = _read(self._day_file)
        if data is not None:
            with contextlib.suppress(ValueError, TypeError):
                day.restore(data)

    def save_final(self, grant: Grant) -> None:
        """Keep a revoked grant's last counters and forget its running ones."""
        _write(self._final / f"{grant.name}.json", grant.usage(), durable=True)
        (self._usage / f"{grant.name}.json").unlink(missing_ok=True)
        kept = sorted(self._final.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in kept[:-FINAL_KEPT]:
            path.unlink(missing_ok=True)

    def final(self, name: str) -> dict[str, Any] | None:
        """Return the last usage of a revoked grant, or None."""
        return _read(self._final / f"{name}.json")

    def forget_final(self, name: str) -> None:
        """Drop the last usage of a grant that is made anew."""
        (self._final / f"{name}.json").unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _write(path: Path, body: dict[str, Any], *, durable: bool) -> None:
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(body, separators=(",", ":")).encode())
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
