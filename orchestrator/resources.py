"""Files that ship beside the code: images/, compose/ and config/. Standard library only.

In a checkout they lie at its top; a wheel carries them under ``orchestrator/share``; in an image config/ lies
beside the package.
"""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent


def share(name: str) -> Path:
    """Return the folder ``images``, ``compose`` or ``config``, wherever this installation keeps it.

    Raises:
        ConfigError: the installation does not have it.
    """
    for parent in (_PACKAGE / "share", _PACKAGE.parent):
        folder = parent / name
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"The folder {name}/ is missing from this installation (looked in {_PACKAGE / 'share'} and {_PACKAGE.parent}).",
        next_step="Install the package again, from a wheel or with `pip install -e .` in a checkout.",
    )


def package() -> Path:
    """Return the folder of the ``orchestrator`` package itself."""
    return _PACKAGE
