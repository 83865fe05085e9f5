from __future__ import annotations

import pytest

from orchestrator.bookbag import BookbagSignal
from orchestrator.bookbag.seal import verify_seal
from orchestrator.errors import SealError
from orchestrator.review import attempts

pytestmark = pytest.mark.engine


def test_two_teachers_without_network_seal_both_verdicts(teachers, wait):
    containers = {teacher: teachers.start(teacher) for teacher in ("cto", "coo")}
    wait(lambda: all(teachers.healthy(container) for container in containers.values()))
    bead = teachers.bead("coder-general-1")
    wait(lambda: teachers.bag(bead)["state"] == "REVIEWED")
    bag = teachers.bag(bead)
    for teacher, other in (("cto", "coo"), ("coo", "cto")):
        verify_seal(teachers.key(teacher), bag, teacher)
        with pytest.raises(SealError):
            verify_seal(teachers.key(other), bag, teacher)
        ((_, asked_for, role),) = teachers.gates[teacher].asked
        assert (asked_for, role) == (bead, f"School-Role: teacher-{teacher}")
    wait(lambda: not BookbagSignal(bead, dirs=teachers.dirs).check())


def test_a_teacher_container_killed_in_mid_review_is_followed_by_one_that_reviews_once_r36(teachers, wait):
    teachers.gates["cto"].open.clear()
    first = teachers.start("cto")
    bead = teachers.bead("coder-general-2")
    wait(lambda: teachers.gates["cto"].asked)
    teachers.engine.kill(first)
    teachers.engine.remove(first)
    assert teachers.bag(bead)["cto_verdict"] == ""
    teachers.gates["cto"].open.set()
    teachers.start("cto")
    wait(lambda: teachers.bag(bead)["cto_verdict"])
    bag = teachers.bag(bead)
    verify_seal(teachers.key("cto"), bag, "cto")
    assert [entry["reason"] for entry in bag["cto_attempts"]] == [attempts.INTERRUPTED]
    assert len(teachers.gates["cto"].asked) == 2
    assert BookbagSignal(bead, dirs=teachers.dirs).check()


def test_a_teacher_stopped_by_the_engine_ends_by_itself_and_logs_its_sleep(teachers, wait):
    container = teachers.start("coo")
    wait(lambda: teachers.healthy(container))
    teachers.engine.stop(container, grace=20)
    assert teachers.engine.inspect(container).exit_code == 0
    assert "event: sleep" in (teachers.home.sessions / "coo" / "library-log.yaml").read_text()


def test_what_a_teacher_may_not_write_it_cannot_r30(teachers, wait):
    container = teachers.start("cto")
    wait(lambda: teachers.healthy(container))
    for path in ("/school/evidence/x", "/school/keys/seal.key", "/school/gate/x", "/school/lib/x", "/x"):
        code, _ = teachers.engine.exec(container, ["python3", "-c", f"open({path!r}, 'a').write('x')"])
        assert code != 0, path
    code, output = teachers.engine.exec(container, ["python3", "-c", "import os; print(os.listdir('/sys/class/net'))"])
    assert (code, output.split()) == (0, [b"['lo']"])
