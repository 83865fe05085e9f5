"""Texts as engines sent them (Docker 20.10.24 unless said), and the errors they become."""

from __future__ import annotations

import errno

import pytest
import requests
import urllib3.exceptions

from orchestrator.engine.docker_errors import from_os, from_status, translated
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

CAPTURED = [
    (404, "No such container: nope", ContainerNotFoundError),
    (404, 'no container with name or ID "nope" found: no such container', ContainerNotFoundError),  # Podman 4.3
    (404, "No such image: nope:1", ImageMissingError),
    (
        409,
        (
            'Conflict. The container name "/school-x-gate" is already in use by container '
            '"3601c9cbe4e0d94d9dbdfb2cfd3a573a408a53dae77040e33e021174ccbe29c6". You have to remove (or rename) that '
            "container to be able to reuse that name."
        ),
        NameTakenError,
    ),
    (
        400,
        'invalid mount config for type "bind": bind source path does not exist: /nope',
        MountRefusedError,
    ),
    (
        400,
        "invalid mount config for type \"bind\": invalid mount path: 'nope' mount path must be absolute",
        MountRefusedError,
    ),
    (
        409,
        "Container 3601c9cbe4e0d94d9dbdfb2cfd3a573a408a53dae77040e33e021174ccbe29c6 is not running",
        EngineError,
    ),
    (404, "network nonet not found", EngineError),
    (400, "Unknown runtime specified nope", EngineError),
    (
        400,
        (
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container "
            'process: exec: "/nope": stat /nope: no such file or directory: unknown'
        ),
        EngineError,
    ),
    (
        500,
        "driver failed programming external connectivity on endpoint x: Bind for 127.0.0.1:80 failed",
        EngineServerError,
    ),
    (503, "", EngineServerError),
]


@pytest.mark.parametrize(("status", "text", "expected"), CAPTURED, ids=[text[:40] for _, text, _ in CAPTURED])
def test_an_answer_of_the_engine_becomes_its_error(status: int, text: str, expected: type[EngineError]) -> None:
    error = from_status(status, text, doing="do a thing")
    assert type(error) is expected
    assert "do a thing" in error.message
    assert text in error.message
    assert error.next_step


def test_a_taken_name_is_in_the_next_step() -> None:
    text = 'Conflict. The container name "/school-x-gate" is already in use by container "36".'
    assert "docker inspect school-x-gate" in from_status(409, text, doing="create it").next_step


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_socket_that_may_not_be_opened_is_a_permission_error(number: int) -> None:
    assert isinstance(from_os(number, endpoint="unix:///x", doing="list", detail=""), EnginePermissionError)


def _wrapped(error: OSError) -> requests.exceptions.ConnectionError:
    """Return the error as requests raises it for a Unix socket."""
    return requests.exceptions.ConnectionError(urllib3.exceptions.ProtocolError("Connection aborted.", error))


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (_wrapped(FileNotFoundError(errno.ENOENT, "No such file or directory")), EngineUnavailableError),
        (_wrapped(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")), EngineUnavailableError),
        (_wrapped(PermissionError(errno.EACCES, "Permission denied")), EnginePermissionError),
        (requests.exceptions.ReadTimeout("Read timed out. (read timeout=60)"), EngineUnavailableError),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), EngineUnavailableError),
        (urllib3.exceptions.ProtocolError("Connection broken: IncompleteRead"), EngineUnavailableError),
    ],
)
def test_a_broken_connection_becomes_an_error_that_names_the_address(
    raised: Exception, expected: type[EngineError]
) -> None:
    with pytest.raises(EngineError) as caught, translated("unix:///run/x.sock", "list containers"):
        raise raised
    assert type(caught.value) is expected
    assert "unix:///run/x.sock" in caught.value.message
    assert caught.value.next_step


def test_an_error_of_ours_passes_unchanged() -> None:
    ours = NameTakenError("x")
    with pytest.raises(NameTakenError) as caught, translated("unix:///x", "create"):
        raise ours
    assert caught.value is ours
