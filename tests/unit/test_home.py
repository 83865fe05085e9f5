"""The home on the disk: its folders, its id, its secrets."""

import multiprocessing
import os
import stat

import pytest

from orchestrator.home import UNPRIVILEGED_ID, Home

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


def make(root) -> Home:
    return Home(root, root / "bookbag", root / "signals", root / "locks")


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path) -> Home:
    previous = os.umask(0o022)
    yield make(tmp_path / "home").ensure()
    os.umask(previous)


def test_only_the_owner_can_enter_any_folder(home):
    folders = [home.root, *(path for path in home.root.rglob("*") if path.is_dir())]
    assert len(folders) > 10
    assert {mode(folder) for folder in folders} == {0o700}


def test_a_home_without_ensure_has_no_id(tmp_path):
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "home").id  # noqa: B018
    assert not (tmp_path / "home").exists()


def test_ensure_again_changes_nothing(home):
    before = home.id
    (home.root / "bookbag" / "a.json").write_text("{}")
    assert home.ensure().id == before
    assert (home.root / "bookbag" / "a.json").read_text() == "{}"


def _ensure(root, start, answers):
    start.wait()
    home = make(root).ensure()
    answers.put((home.id, home.secret("k").read_text()))


def test_several_processes_at_once_agree_on_one_id_and_one_secret(tmp_path):
    context = multiprocessing.get_context("fork")
    start, answers = context.Event(), context.Queue()
    workers = [context.Process(target=_ensure, args=(tmp_path / "home", start, answers)) for _ in range(8)]
    for worker in workers:
        worker.start()
    start.set()
    found = {answers.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    answers.close()
    answers.join_thread()
    assert len(found) == 1
    assert not [path for path in (tmp_path / "home").rglob(".*") if path.is_file()], "a temporary file stayed"


def test_two_homes_have_two_ids(tmp_path, home):
    assert make(tmp_path / "other").ensure().id != home.id
    assert len(home.id) == 12


def test_a_secret_is_made_once_for_the_owner_alone(home):
    path = home.secret("seal.key")
    first = path.read_text()
    assert mode(path) == 0o600
    assert len(bytes.fromhex(first.strip())) == 32
    assert home.secret("seal.key").read_text() == first
    assert home.secret("other.key", nbytes=16).read_text() != first


@pytest.mark.root
@root_only
def test_root_hands_what_containers_write_to_their_uid_and_keeps_the_rest(home):
    assert (home.uid, home.gid) == (UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    given = {home.bookbags, home.signals, home.locks, home.evidence, home.sessions, home.gate, home.rehearsals}
    for path in given:
        assert path.stat().st_uid == UNPRIVILEGED_ID, path
    for path in (home.root, home.school, home.leases, home.leaves, home.archive, home.keys, home.logs):
        assert path.stat().st_uid == 0, path


@pytest.mark.root
@root_only
def test_handing_over_a_link_leaves_its_target_alone(home, tmp_path):
    target = tmp_path / "theirs"
    target.write_text("")
    link = home.gate / "link"
    link.symlink_to(target)
    home.hand_over(link)
    assert link.lstat().st_uid == UNPRIVILEGED_ID
    assert target.stat().st_uid == 0


def test_containers_of_an_ordinary_user_s_home_run_as_that_user(home, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 567)
    assert (home.uid, home.gid) == (1234, 567)
    before = home.gate.stat().st_uid
    home.hand_over(home.gate)
    assert home.gate.stat().st_uid == before
