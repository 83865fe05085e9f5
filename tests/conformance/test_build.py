"""Images on a real engine: built, imported, and what their failures say."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.base import LABEL_HOME
from orchestrator.errors import EngineError, ImageBuildError, ImageMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.conftest import Lab

pytestmark = pytest.mark.engine


def _tar(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def tag(real: Lab) -> Iterator[str]:
    name = f"school-test/{real.home}:1"
    yield name
    real.engine.remove_image(name, force=True)


def test_a_build_streams_its_lines_and_labels_its_image(real: Lab, tag: str) -> None:
    text = f"FROM {real.image}\nARG WORD\nRUN echo said $WORD\nCOPY data /data\n"
    lines: list[str] = []
    identity = real.engine.build(
        _tar(Dockerfile=text, data="x"),
        tag=tag,
        build_args={"WORD": "friend"},
        labels={LABEL_HOME: real.home},
        network="none",
        on_line=lines.append,
    )
    assert "said friend" in lines
    image = real.engine.image(tag)
    assert image is not None
    assert image.id == identity
    assert [found.id for found in real.engine.images({LABEL_HOME: real.home})] == [identity]
    assert real.engine.images({LABEL_HOME: real.home[:-1]}) == []


def test_a_failed_step_is_in_the_error_with_the_end_of_its_output(real: Lab, tag: str) -> None:
    text = f"FROM {real.image}\nRUN seq 1 100; echo the reason >&2; exit 4\n"
    with pytest.raises(ImageBuildError) as caught:
        real.engine.build(_tar(Dockerfile=text), tag=tag, network="none")
    assert "returned a non-zero code: 4" in caught.value.message
    assert "the reason" in caught.value.log_tail
    assert len(caught.value.log_tail.splitlines()) == 40
    assert real.engine.image(tag) is None


@pytest.mark.parametrize("files", [{"other": "x"}, {"Dockerfile": "NOT AN INSTRUCTION\n"}])
def test_a_context_that_can_not_be_built_is_a_build_error(real: Lab, tag: str, files: dict[str, str]) -> None:
    with pytest.raises(ImageBuildError) as caught:
        real.engine.build(_tar(**files), tag=tag)
    assert caught.value.next_step


def test_a_root_file_system_can_be_imported(real: Lab, tag: str, tmp_path: Path) -> None:
    archive = tmp_path / "root.tar"
    archive.write_bytes(_tar(file="x"))
    identity = real.engine.import_image(str(archive), tag=tag, changes=["ENV A=b"])
    found = real.engine.image(tag)
    assert found is not None
    assert found.id == identity
    assert tag in found.tags


def test_what_can_not_be_pulled_is_missing(real: Lab) -> None:
    with pytest.raises(ImageMissingError, match="localhost:1/school-no-such-image"):
        real.engine.pull("localhost:1/school-no-such-image:1")


def test_an_image_in_use_is_not_removed_silently(real: Lab, tag: str) -> None:
    real.engine.tag(real.image, tag)
    real.create("quick", image=tag)
    identity = real.engine.image(tag)
    assert identity is not None
    with pytest.raises(EngineError):
        real.engine.remove_image(identity.id)
