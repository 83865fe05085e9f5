"""What a place is called in a list of allowed ones: ``name:port``, exactly. Light: the host reads it too."""

from __future__ import annotations

import re

NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+")


def valid_place(text: str) -> bool:
    """Return whether a text is ``name:port``, with a name in lower case that is no address."""
    name, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or str(int(port)) != port:
        return False
    return NAME.fullmatch(name) is not None and not name.rpartition(".")[2].isdigit()
