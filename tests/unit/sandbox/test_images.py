"""Which images are built, when, and on top of what; on the engine in memory."""

from __future__ import annotations

import time

import pytest

from orchestrator.engine.fake import FakeEngine
from orchestrator.errors import ConfigError, ImageBuildError, ImageMissingError
from orchestrator.sandbox import base_image, image_build
from orchestrator.sandbox.image_build import LABEL_IMAGE, narrated
from orchestrator.sandbox.images import ALL, ensure_images
from orchestrator.settings import load_settings


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("SCHOOL_HOME", str(tmp_path))
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    return load_settings(build_ca=ca, base_image="base:1")


@pytest.fixture
def engine():
    return FakeEngine({"base:1": lambda run: 0})


def built(engine: FakeEngine) -> list[str]:
    return [about.partition(":")[0] for verb, about in engine.calls if verb == "build"]


def test_all_images_are_built_on_the_base_and_named_by_content(engine, settings):
    tags = ensure_images(engine, settings, ALL, lambda line: None)
    assert sorted(tags) == sorted(ALL)
    assert sorted(built(engine)) == [
        "school/base",
        "school/omniroute",
        "school/service",
        "school/student",
        "school/tools",
    ]
    assert all(tag.startswith(f"school/{name}:") for name, tag in tags.items())
    assert len(engine.images({LABEL_IMAGE: "student"})) == 1


def test_a_second_call_only_looks(engine, settings):
    first = ensure_images(engine, settings, ALL, lambda line: None)
    engine.calls.clear()
    said: list[str] = []
    assert ensure_images(engine, settings, ALL, said.append) == first
    assert {verb for verb, _ in engine.calls} == {"image"}
    assert said == []


def test_other_certificates_make_other_images(engine, settings):
    first = ensure_images(engine, settings, ["base"], lambda line: None)
    settings.build_ca.write_text("-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n")
    assert ensure_images(engine, settings, ["base"], lambda line: None) != first


def test_lines_carry_the_image_they_are_about(engine, settings):
    said: list[str] = []
    ensure_images(engine, settings, ["service"], said.append)
    assert any(line.startswith("[service] ") for line in said)


def test_one_failing_build_does_not_stop_the_others(engine, settings):
    ensure_images(engine, settings, ["base", "tools"], lambda line: None)
    engine.fail("build", ImageBuildError("no network"))
    with pytest.raises(ImageBuildError, match="no network"):
        ensure_images(engine, settings, ["service", "student"], lambda line: None)
    assert len(engine.images({LABEL_IMAGE: "service"})) + len(engine.images({LABEL_IMAGE: "student"})) == 1


def test_an_unknown_image_is_refused(engine, settings):
    with pytest.raises(ConfigError, match="nothing"):
        ensure_images(engine, settings, ["nothing"], lambda line: None)


@pytest.mark.parametrize("host", ["not Debian", "not root"])
def test_without_a_registry_and_without_a_stand_in_the_next_step_is_told(settings, monkeypatch, host):
    monkeypatch.setattr(base_image, "debian_release", lambda: None if host == "not Debian" else ("debian", "trixie"))
    monkeypatch.setattr(base_image.os, "geteuid", lambda: 1000)
    with pytest.raises(ImageMissingError) as caught:
        ensure_images(FakeEngine(), settings, ["service"], lambda line: None)
    assert "SCHOOL_BASE_IMAGE" in caught.value.next_step


def test_a_long_silence_is_filled(monkeypatch):
    monkeypatch.setattr(image_build, "QUIET", 0.0)
    said: list[str] = []
    deadline = time.monotonic() + 30
    with narrated("slow", said.append):
        while not said and time.monotonic() < deadline:
            time.sleep(0.05)
    assert said[0].startswith("[slow] … still at it")
