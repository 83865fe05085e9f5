from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator import personas
from orchestrator.errors import ConfigError
from orchestrator.review import attempts
from orchestrator.teacher import health
from orchestrator.teacher.config import TeacherConfig

PACKAGE_PARENT = str(Path(personas.__file__).parent.parent)


@pytest.fixture
def env(school):
    key = school.root / "seal.key"
    key.write_text((b"c" * 32).hex() + "\n")
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": PACKAGE_PARENT,
        "SCHOOL_TEACHER": "cto",
        "SCHOOL_REVIEW_MODEL": "auto/review",
        "BOOKBAG_DIR": school.dirs.bookbags,
        "SIGNAL_DIR": school.dirs.signals,
        "LOCK_DIR": school.dirs.locks,
        "SCHOOL_EVIDENCE_DIR": str(school.root / "evidence"),
        "SCHOOL_SESSION_DIR": str(school.root / "sessions" / "cto"),
        "SCHOOL_SEAL_KEY": str(key),
        "SCHOOL_GATE_SOCKET": str(school.server.path),
    }


@pytest.fixture
def start(env):
    running = []

    def run(*argv, **more):
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.teacher", *argv],
            env=env | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate(timeout=30)


def test_a_teacher_killed_in_mid_review_leaves_the_bead_to_the_next_which_reviews_once_r36(school, start, wait):
    school.server.gate.clear()
    bead = school.bead()
    first = start()
    wait(lambda: school.server.asked)
    first.kill()
    first.wait(30)
    assert school.bag(bead)["cto_verdict"] == ""
    school.server.gate.set()
    second = start()
    wait(lambda: school.bag(bead)["cto_verdict"])
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    assert school.server.asked == [bead, bead]
    assert [entry["reason"] for entry in school.bag(bead)["cto_attempts"]] == [attempts.INTERRUPTED]


def test_sigterm_ends_a_teacher_that_is_waiting_for_its_model(school, start, wait):
    school.server.gate.clear()
    bead = school.bead()
    process = start()
    wait(lambda: school.server.asked)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert school.bag(bead)["cto_attempts"] == []


def test_health_follows_the_loop_and_not_the_process(school, start, wait):
    assert start("health").wait(30) == 1
    process = start()
    wait(lambda: health.problem(school.root / "sessions" / "cto") == "")
    assert start("health").wait(30) == 0
    process.send_signal(signal.SIGSTOP)
    folder = school.root / "sessions" / "cto"
    assert "old" in health.problem(folder, now=time.time() + health.STALE + 1)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("SCHOOL_TEACHER", "ceo", "SCHOOL_TEACHER is 'ceo'"),
        ("SCHOOL_REVIEW_MODEL", "", "SCHOOL_REVIEW_MODEL is not set"),
        ("DEFAULT_REVIEW_TIMEOUT", "soon", "DEFAULT_REVIEW_TIMEOUT is 'soon'"),
        ("SCHOOL_REVIEW_ATTEMPTS", "0", "SCHOOL_REVIEW_ATTEMPTS is '0'"),
        ("SCHOOL_REVIEW_ATTEMPTS", "0.5", "SCHOOL_REVIEW_ATTEMPTS is '0.5'"),
        ("DEFAULT_POLL_INTERVAL", "inf", "DEFAULT_POLL_INTERVAL is 'inf'"),
        ("DEFAULT_POLL_INTERVAL", "nan", "DEFAULT_POLL_INTERVAL is 'nan'"),
    ],
)
def test_a_wrong_setting_is_named(env, name, value, reason):
    with pytest.raises(ConfigError, match=reason):
        TeacherConfig.from_env(env | {name: value})


def test_a_teacher_without_its_key_ends_with_a_reason(start):
    process = start(SCHOOL_SEAL_KEY="/nonexistent")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "The seal key /nonexistent can't be read" in output
    assert "Traceback" not in output


def test_other_arguments_are_a_usage_error(start):
    assert start("dance").wait(30) == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"at": "now"}', '{"at": true}', "\x00"])
def test_a_heartbeat_that_is_none_is_not_health(tmp_path, content):
    (tmp_path / health.FILE).write_text(content)
    assert health.problem(tmp_path) == "no heartbeat yet"
