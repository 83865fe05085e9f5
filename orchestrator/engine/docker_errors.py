"""Turns what the docker SDK, requests and the socket raise into errors of ours, each with a next step.

Engines say what went wrong in English text and a status code; the texts matched here are those of Docker
20.10 to 29 and of Podman's socket, kept as captured in tests/unit/engine/test_docker_errors.py.
"""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.errors import (
    ContainerNotFoundError,
    EngineError,
    EnginePermissionError,
    EngineServerError,
    EngineUnavailableError,
    ImageMissingError,
    MountRefusedError,
    NameTakenError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_CONTAINER = re.compile(r"no such container|no container with name or id", re.IGNORECASE)
_NO_IMAGE = re.compile(
    r"no such image|image not known|manifest unknown|pull access denied"
    r"|repository .* not found|not found: manifest|failed to resolve reference",
    re.IGNORECASE,
)
_NAME = re.compile(r"the container name \"?/?(?P<name>[^\"\s]+)\"? is already in use", re.IGNORECASE)
_MOUNT = re.compile(
    r"invalid mount config|bind source path does not exist|invalid volume specification|statfs .*: no such file",
    re.IGNORECASE,
)
_TRANSIENT_STATUS = frozenset({500, 502, 503, 504})


def from_status(status: int, reason: str, *, doing: str) -> EngineError:
    """Return the error for an answer of the engine.

    Args:
        status: The HTTP status code.
        reason: The engine's own text.
        doing: What was asked for, for the message: "create the container x".
    """
    text = f"The engine could not {doing}: {reason.strip() or f'HTTP {status}'}"
    if _NO_CONTAINER.search(reason):
        return ContainerNotFoundError(text, next_step="It may have removed itself; `school ps` lists what is there.")
    if named := _NAME.search(reason):
        name = named["name"].rstrip(".")
        return NameTakenError(
            text, next_step=f"`docker inspect {name}` shows whose it is; `docker rm -f {name}` removes it."
        )
    if _MOUNT.search(reason):
        return MountRefusedError(
            text,
            next_step="The folder must exist where the engine runs; `school doctor` probes what it sees.",
        )
    if _NO_IMAGE.search(reason):
        return ImageMissingError(text, next_step="`make up` builds or pulls the school's images.")
    if status in _TRANSIENT_STATUS:
        return EngineServerError(text, next_step="Try again; `school doctor` looks at the engine.")
    return EngineError(text, next_step="`school doctor` looks at the engine.")


def from_os(number: int | None, *, endpoint: str, doing: str, detail: str) -> EngineError:
    """Return the error for a connection that could not be made or that broke.

    Args:
        number: The errno, when it is known.
        endpoint: The engine's address.
        doing: What was asked for.
        detail: The reason in the words of the failing layer.
    """
    if number in (errno.EACCES, errno.EPERM):
        return EnginePermissionError(
            f"This user may not open the engine's socket at {endpoint} (to {doing}).",
            next_step="Join the engine's group (`sudo usermod -aG docker $USER`, log in again) or use a rootless one.",
        )
    return EngineUnavailableError(
        f"The engine at {endpoint} did not answer (to {doing}): {detail}",
        next_step="Start it (`sudo systemctl start docker`), or point DOCKER_HOST at one that runs.",
    )


def first_errno(error: BaseException) -> int | None:
    """Return the errno of the innermost OSError: requests and urllib3 wrap it several times."""
    found: int | None = None
    seen: set[int] = set()
    pending: list[BaseException] = [error]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, OSError) and isinstance(current.errno, int):
            found = current.errno
        pending.extend(a for a in current.args if isinstance(a, BaseException))
        pending.extend(
            e
            for e in (current.__cause__, current.__context__, getattr(current, "reason", None))
            if isinstance(e, BaseException)
        )
    return found


@contextmanager
def translated(endpoint: str, doing: str) -> Iterator[None]:
    """Raise errors of ours for whatever the body's call to the engine raises.

    Raises:
        EngineError: or one of its subclasses.
    """
    import docker.errors  # noqa: PLC0415 - costs 29 MB: only who talks to an engine pays
    import requests  # noqa: PLC0415
    import urllib3.exceptions  # noqa: PLC0415

    try:
        yield
    except docker.errors.APIError as error:
        status = error.response.status_code if error.response is not None else 0
        raise from_status(status, str(error.explanation or error), doing=doing) from error
    except requests.exceptions.Timeout as error:
        raise from_os(None, endpoint=endpoint, doing=doing, detail="no answer in time") from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        number = first_errno(error)
        raise from_os(number, endpoint=endpoint, doing=doing, detail=str(error)) from error
