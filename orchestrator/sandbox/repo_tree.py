"""A repository's tree as of one commit, as far as building its image needs it. Made by the caller from git."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class RepoTree:
    """What can be asked of the tree.

    Attributes:
        read: A file's content by its path, or None.
        paths: The paths of all files.
        archive: The whole tree as an uncompressed tar archive (``git archive``).
        version: The version that the repository's tags say (``1.4.2``), for tools that would ask git.
        ids: What git names the contents by, of each path; what is not in it is read to be compared.
    """

    read: Callable[[str], bytes | None]
    paths: Callable[[], Sequence[str]]
    archive: Callable[[], bytes]
    version: str = "0.0.0"
    ids: Callable[[], Mapping[str, str]] = dict
