"""`school spawn` on every kind of repository: it works, and nothing that is the user's changes (issue 2)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.standing]

NOTHING = {"containers": [], "folders": [], "sockets": [], "leases": []}
IDENTITY = {"GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@x", "GIT_COMMITTER_NAME": "U", "GIT_COMMITTER_EMAIL": "u@x"}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d7a" * 16 + "\nsize 12345\n"


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user would."""
    settings = ("-c", "protocol.file.allow=always", "-c", "safe.directory=*", "-c", "advice.detachedHead=false")
    argv = ["git", *settings, "-C", str(folder), *arguments]
    env = {**os.environ, **IDENTITY}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout.strip()


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def make(
    root: Path, files: dict[str, str] | None = None, *, branch: str = "main", options: tuple[str, ...] = ()
) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", branch, *options)
    write(root, files or {"README": "read me\n", "src/a.py": "a = 1\n", "docs/b.txt": "b\n"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Start")
    return root


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Every path with its bytes, mode, owner and time, but for what the school may add: objects and its own refs."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            relative = path.relative_to(root)
            inside = relative.parts[relative.parts.index(".git") + 1 :] if ".git" in relative.parts else ()
            if inside[:1] == ("objects",) or inside[:2] in {("refs", "school"), ("refs", "heads")}:
                continue
            if inside[:3] == ("logs", "refs", "heads") and "/".join(inside[3:]).startswith("school"):
                continue
            status = path.lstat()
            if path.is_symlink():
                found[str(relative)] = ("link", path.readlink(), status.st_uid)
            elif path.is_dir():
                found[str(relative)] = ("folder", status.st_mode, status.st_uid)
            else:
                found[str(relative)] = ("file", path.read_bytes(), status.st_mode, status.st_uid, status.st_mtime_ns)
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(school, engine):
    yield
    assert school.traces(engine) == NOTHING


@pytest.fixture
def change(school):
    """Spawn a student that runs a command, and expect its change to be accepted; the user's things stay as they are."""

    def run(repo: Path, command: str, *options: object, watched: Path | None = None):
        watched = watched or repo
        before, heads = (
            everything(watched),
            git(repo, "for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/remotes"),
        )
        worktrees = git(repo, "worktree", "list", "--porcelain")
        done = school.spawn(repo, "Change it.", "--agent", "command", "--command", command, *options)
        assert (done.code, done.report.get("outcome")) == (0, "accepted"), done.stderr
        assert everything(watched) == before
        now = git(repo, "for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/remotes").splitlines()
        assert [line for line in now if not line.endswith(f"refs/heads/{done.report['branch']}")] == heads.splitlines()
        assert git(repo, "worktree", "list", "--porcelain") == worktrees
        head = done.report["head_sha"]
        assert git(repo, "rev-parse", done.report["branch"]) == head
        assert git(repo, "rev-parse", f"{head}^") == done.report["base_sha"]
        git(repo, "fsck", "--connectivity-only", head)
        return done

    return run


def seen(repo: Path, done, path: str = "seen.txt") -> str:
    """Return what the student wrote into a file of its result."""
    return git(repo, "show", f"{done.report['head_sha']}:{path}")


def test_uncommitted_changes_index_config_hooks_stash_and_branch_stay_byte_for_byte(change, tmp_path):
    repo = make(tmp_path / "repo")
    (repo / "README").write_text("stashed\n")
    git(repo, "stash", "push", "-q")
    write(
        repo, {"README": "not staged\n", "src/a.py": "staged = 1\n", "new.txt": "untracked\n", "docs/c.txt": "staged\n"}
    )
    git(repo, "add", "src/a.py", "docs/c.txt")
    (repo / "docs/b.txt").unlink()
    git(repo, "config", "user.name", "Somebody Else")
    for hook in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change"):
        path = repo / ".git/hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\n")
        path.chmod(0o755)
    done = change(repo, "cat README src/a.py docs/b.txt > seen.txt; ls >> seen.txt")
    assert seen(repo, done).splitlines() == ["read me", "a = 1", "b", "README", "docs", "seen.txt", "src"]
    assert done.report["files_changed"] == ["seen.txt"]
    assert "uncommitted changes" in done.stderr
    assert not (tmp_path / "hook-ran").exists()
    assert git(repo, "branch", "--show-current") == "main"


def test_a_linked_worktree(change, tmp_path):
    main = make(tmp_path / "all/main")
    git(main, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "all/linked"))
    linked = tmp_path / "all/linked"
    write(linked, {"topic.txt": "topic\n"})
    git(linked, "add", "-A")
    git(linked, "commit", "-qm", "Topic")
    done = change(linked, "cat topic.txt > seen.txt; git branch --list topic >> seen.txt", watched=tmp_path / "all")
    assert seen(linked, done).split() == ["topic", "topic"]
    assert done.report["base_sha"] == git(linked, "rev-parse", "HEAD") != git(main, "rev-parse", "HEAD")


def test_a_shallow_clone(change, tmp_path):
    origin = make(tmp_path / "origin")
    git(origin, "commit", "-q", "--allow-empty", "-m", "Second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    done = change(tmp_path / "shallow", "git log --format=%s > seen.txt && git status --short >> seen.txt")
    assert seen(tmp_path / "shallow", done).splitlines() == ["Second", "?? seen.txt"]


def test_a_sparse_checkout_is_seen_whole_and_loses_nothing(change, tmp_path):
    repo = make(tmp_path / "repo")
    git(repo, "sparse-checkout", "set", "docs")
    assert not (repo / "src").exists()
    done = change(repo, "cat src/a.py > seen.txt")
    assert seen(repo, done) == "a = 1"
    assert done.report["files_changed"] == ["seen.txt"]


def test_a_sha256_repository(change, tmp_path):
    repo = make(tmp_path / "repo", options=("--object-format=sha256",))
    done = change(repo, "git rev-parse HEAD > seen.txt && git add -A && git commit -qm mine")
    assert seen(repo, done) == done.report["base_sha"]
    assert len(done.report["head_sha"]) == 64


@pytest.fixture
def with_submodules(tmp_path) -> Path:
    lib, gone = make(tmp_path / "lib", {"l.txt": "lib\n"}), make(tmp_path / "gone", {"g.txt": "gone\n"})
    top = make(tmp_path / "top")
    git(top, "submodule", "--quiet", "add", str(lib), "vendor/lib")
    git(top, "submodule", "--quiet", "add", str(gone), "gone")
    git(top, "commit", "-qam", "Submodules")
    git(top, "submodule", "--quiet", "deinit", "gone")
    subprocess.run(["rm", "-rf", str(top / ".git/modules/gone")], check=True)
    return top


def test_submodules_are_filled_or_named_as_missing_and_a_change_in_one_is_reported(change, with_submodules):
    command = "cp vendor/lib/l.txt seen.txt; ls gone >> seen.txt; echo x >> vendor/lib/l.txt"
    done = change(with_submodules, command, "--verify", "test lib = $(cat vendor/lib/l.txt)")
    assert done.report["verification"]["status"] == "passed"
    assert seen(with_submodules, done) == "lib"
    assert done.report["files_changed"] == ["seen.txt"]
    said = done.report["diagnostics"]
    assert [line for line in said if line.startswith("gone:") and "not here" in line]
    assert [line for line in said if line.startswith("vendor/lib") and "inside the submodule" in line]
    assert "vendor/lib" in done.stderr


def test_a_change_in_a_submodule_alone_is_no_result_and_is_reported(school, with_submodules):
    command = "echo x >> vendor/lib/l.txt"
    done = school.spawn(with_submodules, "Change it.", "--agent", "command", "--command", command)
    assert (done.code, done.report["outcome"]) == (3, "task_failed")
    assert [
        line for line in done.report["diagnostics"] if line.startswith("vendor/lib") and "inside the submodule" in line
    ]


def test_lfs_files_are_pointers_before_and_after(change, tmp_path):
    files = {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "big.bin": POINTER, "README": "read me\n"}
    repo = make(tmp_path / "repo", files)
    for key, value in {
        "clean": "no-such-git-lfs clean %f",
        "smudge": "no-such-git-lfs smudge %f",
        "required": "true",
    }.items():
        git(repo, "config", f"filter.lfs.{key}", value)  # Git LFS is configured here and not installed
    done = change(repo, "cp big.bin seen.txt && git status --short --untracked-files=no >> seen.txt")
    assert seen(repo, done) + "\n" == POINTER
    assert done.report["files_changed"] == ["seen.txt"]
    assert "LFS" in done.stderr


def test_tags_are_there_for_describe(change, sample):
    done = change(sample, "git describe > seen.txt && git describe --tags --always --dirty >> seen.txt")
    assert seen(sample, done).splitlines() == ["v1.0", "v1.0"]


def test_nested_alternates(change, tmp_path):
    first = make(tmp_path / "first")
    for source, name in (("first", "second"), ("second", "third")):
        git(tmp_path, "clone", "-q", "--shared", str(tmp_path / source), name)
        write(tmp_path / name, {f"{name}.txt": f"{name}\n"})
        git(tmp_path / name, "add", "-A")
        git(tmp_path / name, "commit", "-qm", name)
    before = everything(first)
    done = change(tmp_path / "third", "cat README second.txt third.txt > seen.txt; git log --format=%s >> seen.txt")
    assert seen(tmp_path / "third", done).splitlines() == ["read me", "second", "third", "third", "second", "Start"]
    assert everything(first) == before


@pytest.mark.root
def test_another_owners_repository_stays_theirs(change, tmp_path):
    repo = make(tmp_path / "repo")
    subprocess.run(["chown", "-R", "12345:12345", str(repo)], check=True)
    change(repo, "date > seen.txt")
    foreign = [path for path in (repo, *repo.rglob("*")) if path.lstat().st_uid != 12345]
    assert foreign == []


def test_a_space_and_letters_beyond_ascii_in_the_path_and_in_names(change, tmp_path):
    repo = make(tmp_path / "ein Ordner" / "naïve, ☃ 'x'", {"größe.txt": "groß\n", "a b/c d.txt": "c d\n"})
    done = change(repo, "cat größe.txt 'a b/c d.txt' > seen.txt; echo y > 'neu ☃.txt'")
    assert seen(repo, done).splitlines() == ["groß", "c d"]
    assert done.report["files_changed"] == ["neu ☃.txt", "seen.txt"]


def test_a_detached_head(change, tmp_path):
    repo = make(tmp_path / "repo")
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Second")
    git(repo, "checkout", "-q", first)
    done = change(repo, "git log --format=%s > seen.txt")
    assert seen(repo, done) == "Start"
    assert done.report["base_sha"] == first == git(repo, "rev-parse", "HEAD")


def test_a_branch_named_school_gets_out_of_nobodys_way(change, tmp_path):
    repo = make(tmp_path / "repo", branch="school")
    done = change(repo, "date > seen.txt")
    assert done.report["branch"] == f"school-{done.report['bead']}"
    assert "branch named school" in done.stderr


def test_a_folder_inside_the_repository_stands_for_all_of_it(change, tmp_path, school):
    repo = make(tmp_path / "repo")
    before = everything(repo)
    done = school.spawn(
        repo / "docs", "Change it.", "--agent", "command", "--command", "pwd > seen.txt; ls >> seen.txt"
    )
    assert done.code == 0, done.stderr
    assert done.report["repo"] == str(repo)
    assert seen(repo, done).splitlines() == ["/workspace", "README", "docs", "seen.txt", "src"]
    assert everything(repo) == before


def test_a_base_that_is_not_checked_out(change, tmp_path):
    repo = make(tmp_path / "repo")
    git(repo, "tag", "old")
    write(repo, {"later.txt": "later\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Later")
    done = change(repo, "ls > seen.txt", "--base", "old")
    assert "later.txt" not in seen(repo, done)
    assert done.report["base_sha"] == git(repo, "rev-parse", "old")


@pytest.mark.parametrize(
    ("kind", "says", "next_step"),
    [
        ("nothing", "not inside a git repository", "init"),
        ("bare", "bare", "git clone"),
        ("empty", "no commit yet", "commit"),
        ("git dir", "inside a git dir", "working tree"),
        ("file", "not a folder", "folder inside"),
    ],
)
def test_what_is_no_usable_repository_is_a_usage_error_with_a_next_step(school, tmp_path, kind, says, next_step):
    repo = tmp_path / "it"
    match kind:
        case "nothing":
            repo.mkdir()
        case "bare":
            git(tmp_path, "clone", "-q", "--bare", str(make(tmp_path / "full")), str(repo))
        case "empty":
            git(tmp_path, "init", "-q", str(repo))
        case "git dir":
            repo = make(repo) / ".git"
        case "file":
            repo.write_text("x")
    done = school.spawn(repo, "Change it.")
    assert done.code == 2
    assert says in done.report["message"]
    assert next_step in done.report["next_step"]
    assert next_step in done.stderr
    assert "Traceback" not in done.stderr
