"""Dependencies through `.school.toml`: shown, built once, built again when they change, and clear when they fail."""

from __future__ import annotations

import io
import tarfile

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]

NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}
SETUP = '[student]\nsetup = ["cat wanted.txt > /opt/have.txt"]\ncache_files = ["wanted.txt"]\n'


@pytest.fixture
def repo(sample, git, tmp_path):
    """A repository whose setup puts a file into the image. Its name makes the setup this test's own."""
    (sample / ".school.toml").write_text(f"# {tmp_path}\n{SETUP}")
    (sample / "wanted.txt").write_text(f"first {tmp_path}\n")
    git(sample, "add", "-A")
    git(sample, "commit", "-qm", "Setup")
    return sample


@pytest.fixture
def look(school):
    """Spawn a student that copies what the image has into its result; return how that went."""

    def run(repo, *options):
        command = "cat /opt/have.txt > have.txt"
        return school.spawn(repo, "Look.", "--agent", "command", "--command", command, *options)

    return run


def have(repo, git, done) -> str:
    return git(repo, "show", f"{done.report['head_sha']}:have.txt").split()[0]


def test_a_setup_is_shown_run_once_and_run_again_when_its_files_change(repo, git, look):
    first = look(repo)
    assert first.code == 0, first.stderr
    assert "will run: cat wanted.txt > /opt/have.txt" in first.stderr
    assert first.stderr.index("will run: cat") < first.stderr.index("school-setup: command 1 of 1")
    assert have(repo, git, first) == "first"
    (repo / "stats.py").write_text("x = 1\n")
    git(repo, "commit", "-qam", "Source")
    second = look(repo)
    assert second.code == 0, second.stderr
    assert "building" not in second.stderr
    (repo / "wanted.txt").write_text("second\n")
    (repo / ".school.toml").write_text("[student]\nsetup = ['false']\n")
    uncommitted = look(repo)
    assert "the .school.toml in the working tree does not count" in uncommitted.stderr
    git(repo, "checkout", "-q", ".school.toml")
    assert have(repo, git, uncommitted) == "first"
    git(repo, "commit", "-qam", "Other dependencies")
    third = look(repo)
    assert "will run: cat wanted.txt" in third.stderr
    assert have(repo, git, third) == "second"


def test_the_check_runs_in_the_same_image(repo, look):
    done = look(repo, "--verify", "grep first /opt/have.txt && test -e have.txt")
    assert done.report["verification"]["status"] == "passed"


def test_a_failing_setup_ends_with_7_names_the_command_and_shows_the_end_of_its_log(school, engine, sample, git):
    commands = '["true", "echo looking for libfoo; echo libfoo was not found >&2; exit 3"]'
    (sample / ".school.toml").write_text(f"[student]\nsetup = {commands}\n")
    git(sample, "add", "-A")
    git(sample, "commit", "-qm", "Setup")
    done = school.spawn(sample, "Change it.")
    assert done.code == 7
    assert done.report["error"] == "RepoSetupError"
    assert "Setup command 2 of .school.toml ended with 3" in done.report["message"]
    assert "libfoo was not found" in done.report["log_tail"]
    assert "libfoo was not found" in done.stderr
    assert "student.packages" in done.report["next_step"]
    assert "Traceback" not in done.stderr
    built = school.run("setup", "--repo", sample, "--build")
    assert built.returncode == 7
    assert "libfoo was not found" in built.stderr
    assert school.traces(engine) == NOTHING


def test_a_wrong_file_is_a_usage_error_with_its_line(school, sample, git):
    (sample / ".school.toml").write_text('[student]\nsetup = "make deps"\n')
    git(sample, "add", "-A")
    git(sample, "commit", "-qm", "Setup")
    done = school.spawn(sample, "Change it.")
    assert done.code == 2
    assert ".school.toml, line 2" in done.report["message"]


def test_a_local_image_is_used_and_made_fit(school, sample, git, engine, image):
    """The repository's own image, named on the command line; here it is ours, with a file more, under another name."""
    dockerfile = f'FROM {image("base")}\nRUN echo own > /opt/have.txt\nUSER 1000\nENTRYPOINT ["false"]\n'.encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile)
        tar.addfile(info, io.BytesIO(dockerfile))
    engine.build(buffer.getvalue(), tag="school-test-own:1")
    try:
        command = "cat /opt/have.txt > have.txt; git describe >> have.txt"
        options = ("--agent", "command", "--command", command, "--image", "school-test-own:1")
        done = school.spawn(sample, "Look.", *options)
        assert done.code == 0, done.stderr
        assert have(sample, git, done) == "own"
        light = school.spawn(sample, "Change something.", "--image", "school-test-own:1")
        assert light.code == 0, light.stderr
        assert "building" not in light.stderr
    finally:
        engine.remove_image("school-test-own:1", force=True)


def test_an_image_that_is_nowhere_is_named_with_the_option(school, sample):
    done = school.spawn(sample, "Change it.", "--image", "no-such-image-anywhere:1")
    assert done.code == 7
    assert "--image names the image no-such-image-anywhere:1" in done.report["message"]
    assert "docker load" in done.report["next_step"]


def test_the_proposal_is_printed_and_written_only_when_asked(school, sample, git):
    printed = school.run("setup", "--repo", sample)
    assert printed.returncode == 0
    assert "python3 -m unittest" in printed.stdout
    assert "nothing was written" in printed.stderr
    assert git(sample, "status", "--porcelain") == ""
    written = school.run("setup", "--repo", sample, "--write")
    assert written.returncode == 0
    assert (sample / ".school.toml").read_text() == printed.stdout == written.stdout
    assert "commit -m" in written.stderr
    assert " -f " not in written.stderr
    (sample / ".gitignore").write_text(".*\n")
    (sample / ".school.toml").unlink()
    assert "add -f .school.toml" in school.run("setup", "--repo", sample, "--write").stderr
    again = school.run("setup", "--repo", sample, "--write")
    assert again.returncode == 2
    assert "exists already" in again.stderr
