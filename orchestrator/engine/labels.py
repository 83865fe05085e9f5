"""What it means for an object to carry labels: one rule for every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def carries(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether all wanted labels are there with exactly these values; an empty value asks for the name alone."""
    return all(name in found and value in ("", found[name]) for name, value in wanted.items())
