"""What a student leaves behind for the host: a hostile tree, git dir and outbox, made inside one real container.

The container is given a folder of the host's by name (``$MARK``) that it can't see. A trap that springs on the host
makes a file there. The principal's whole way is gone then: freeze, keep, branch, diff, audit files, dispose; and the
user's own git looks at the result.
"""

import os
import subprocess
from dataclasses import dataclass, field

import pytest

from orchestrator.git.freeze import FrozenTree
from orchestrator.git.landing import create_branch, diff, diffstat, keep
from orchestrator.leaf.outbox import read_file, read_json

pytestmark = pytest.mark.engine


@dataclass
class Left:
    """Everything that there is to look at afterwards."""

    said: dict = field(default_factory=dict)
    sprung: list = field(default_factory=list)
    frozen: FrozenTree | None = None
    files: dict = field(default_factory=dict)  # path -> (mode, bytes) of the frozen commit
    diff: bytes = b""
    message: str = ""
    before: dict = field(default_factory=dict)
    after: dict = field(default_factory=dict)
    fsck: str = ""
    outside: list = field(default_factory=list)
    outcome: object = None
    submission: object = None
    removed: bool = False
    base_readme: bytes = b""


def user_git(repo, *arguments):
    """Git as the user runs it, with the user's own configuration."""
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments], capture_output=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.stdout


def snapshot(repo):
    found = {}
    for folder, _, names in os.walk(repo):
        if (
            "/.git/objects" in folder
            or "/refs/school" in folder
            or "/refs/heads/school" in folder
            or "/worktrees" in folder
        ):
            continue
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), repo)] = file.read()
    return {
        path: data for path, data in found.items() if not path.startswith((".git/index", ".git/logs/refs/heads/school"))
    }


_LEFT: list[Left] = []


@pytest.fixture
def left(request):
    if not _LEFT:
        _LEFT.append(
            carry_out(
                *(request.getfixturevalue(name) for name in ("make_leaf", "sample", "inside", "tmp_path_factory"))
            )
        )
    return _LEFT[0]


def carry_out(make_leaf, sample, inside, tmp_path_factory):
    mark = tmp_path_factory.mktemp("mark")
    (mark / "secret.txt").write_text("the secret of the host\n")
    (mark / "outside").mkdir()
    (mark / "outside" / "precious").write_text("precious\n")
    (mark / "secret").mkdir()
    for arguments in (
        ("init", "-q"),
        ("-c", "user.name=u", "-c", "user.email=u@x", "commit", "-q", "--allow-empty", "-m", "a secret message"),
    ):
        subprocess.run(["git", *arguments], cwd=mark / "secret", check=True)
    (sample / "pkg").mkdir()
    (sample / "pkg" / "__init__.py").write_text("")
    user_git(sample, "add", "-A")
    user_git(sample, "-c", "user.name=u", "-c", "user.email=u@x", "commit", "-q", "-m", "a package")
    for kind in ("clean", "smudge", "process"):
        user_git(sample, "config", f"filter.users.{kind}", f"touch {mark}/git-users-own-filter; cat")
    for kind in ("textconv", "command"):
        user_git(sample, "config", f"diff.users.{kind}", f"touch {mark}/git-users-own-diff-driver; cat")
    found = Left(before=snapshot(sample))
    command = f"export MARK={mark}\n{inside.script('plant')}"
    with make_leaf(command, repo=sample, wall=240, disk=400 << 20) as leaf:
        leaf.boot()
        leaf.write_brief()
        record = leaf.run_task()
        found.said = inside.verdicts("\n".join(record.output))
        outbox = leaf.read_outbox().outbox
        found.outcome, found.submission = read_json(outbox, "outcome.json"), read_file(outbox, "bookbag.json")
        found.frozen = leaf.freeze("A task")
        workspace = leaf._workspace
        keep(workspace, leaf.plan.bead, found.frozen.head_sha)
        create_branch(workspace.repo, f"school/{leaf.plan.bead}", found.frozen.head_sha)
        found.diff = diff(workspace.repo, workspace.base_sha, found.frozen.head_sha)
        diffstat(workspace.repo, workspace.base_sha, found.frozen.head_sha)
        leaf.write_output({"bead": leaf.plan.bead})
        found.removed = leaf.dispose()
    head = found.frozen.head_sha
    for row in user_git(sample, "ls-tree", "-r", "-z", head).split(b"\0"):
        if row:
            info, path = row.split(b"\t", 1)
            mode, _, oid = info.decode().split()
            found.files[os.fsdecode(path)] = (mode, user_git(sample, "cat-file", "blob", oid))
    found.message = user_git(sample, "log", "-1", "--format=%B", head).decode("utf-8", "replace")
    found.base_readme = user_git(sample, "show", "HEAD:README.md")
    user_git(sample, "status")
    user_git(sample, "log", "--all", "--stat")
    user_git(sample, "branch", "-a")
    found.fsck = subprocess.run(
        ["git", "-C", str(sample), "fsck", "--strict", "--no-dangling"], capture_output=True, text=True, check=False
    ).stderr
    found.after = snapshot(sample)
    found.outside = sorted(path.name for path in (mark / "outside").iterdir())
    found.sprung = [path.name for path in mark.iterdir() if path.name not in {"secret.txt", "outside", "secret"}]
    return found


def has(*paths):
    return lambda left: all(path in left.files for path in paths)


def lacks(*parts):
    return lambda left: not [path for path in left.files if any(part in path for part in parts)]


def notice(kind):
    return lambda left: kind in {one.kind for one in left.frozen.notices}


def content(path, data, mode="100644"):
    return lambda left: left.files.get(path) == (mode, data)


LOOKS = {
    "git-index-flags": lambda left: b"assume-unchanged" in left.files["README.md"][1] and b"skip-worktree" in left.files["stats.py"][1],
    "git-commit-message": lambda left: "\x1b" not in left.message and "\nReviewed-by" not in left.message and left.message.count("\nBead: ") <= 1,
    "git-replace-ref": lambda left: b"refs/replace" not in b"".join(left.after.values()),
    "git-collect-garbage": lambda left: not [line for line in left.fsck.splitlines() if ": gitmodules" not in line],
    "git-poisoned-object": lambda left: b"POISONED" not in left.base_readme and left.base_readme,
    "git-pointer-swap": lambda left: left.removed,
    "git-filters": content("filtered.txt", b"as it was written\r\n"),
    "git-textconv": lambda left: b"+plain text in a file that asks" in left.diff,
    "git-users-own-filter": content("chosen.u", b"as it was written\n"),
    "git-users-own-diff-driver": lambda left: b"+as it was written" in left.diff,
    "git-attributes-hide": lambda left: b"+$Id$ a line to be seen" in left.diff,
    "git-ignore-hides": has("ignored-by-the-student.sh"),
    "git-submodule-commands": lambda left: has("evil/file")(left) and notice("unsafe_gitmodules")(left),
    "git-nested-repository": lambda left: has("nested/inside.c")(left) and lacks("nested/.git")(left),
    "git-linked-dotgit": lacks("linked/.git", "pointed/.git"),
    "git-case-names": lambda left: not [path for path in left.files if any(part.lower() == ".git" for part in path.split("/"))],
    "git-unicode-names": lacks("\u200c", "\u200d", "\ufeff", "\u206a"),
    "git-windows-names": lacks("git~1", ".git ", ".git./", ".git::", "GIT~1", "a\\.git"),
    "git-linked-gitmodules": lacks("links/"),
    "git-alternates": lambda left: "a secret message" not in left.message and b"a secret" not in left.diff,
    "files-link-to-a-secret": lambda left: left.files["link-to-a-secret"][0] == "120000" and not [d for _, d in left.files.values() if b"the secret of the host" in d],
    "files-link-for-a-folder": lambda left: left.files["pkg"][0] == "120000" and left.outside == ["precious"],
    "files-link-where-the-principal-writes": lambda left: left.outside == ["precious"],
    "files-pipes-and-sockets": lambda left: lacks("AGENTS.md", "new-pipe", "new-socket")(left) and notice("special_file")(left),
    "files-setuid": lambda left: left.files["setuid-shell"][0] == "100755",
    "files-too-large": lambda left: notice("too_large")(left) and lacks("large")(left),
    "files-deep": lambda left: left.removed and notice("path_too_long")(left),
    "files-many-levels": lambda left: left.removed,
    "files-odd-names": has("new\nline", "\x1b]0;owned\x07", "-rf", os.fsdecode(b"\xff\xfe"), "M 100644 inline x"),
    "files-unreadable": lambda left: left.files["locked/file"][1] == b"in a locked folder\n" and has("locked-file")(left),
    "files-outbox-links": lambda left: left.outcome is None or left.outcome["agent"] == "command",
    "files-outbox-pipe": lambda left: left.submission is None or b"schema_version" in left.submission,
    "files-outbox-events-replaced": lambda left: left.outside == ["precious"],
}  # fmt: skip
"""What else must hold for an attack, besides: it was carried out, and no trap sprang."""


def test_left_behind(left, attack_id):
    said = left.said.get(attack_id)
    assert said is not None, f"not carried out: {sorted(left.said)}"
    assert said["held"] is True, said["detail"]
    assert attack_id not in left.sprung
    assert LOOKS.get(attack_id, lambda _: True)(left), left.frozen.notices


def test_no_trap_sprang_and_the_users_repository_is_as_it_was(left):
    assert left.sprung == []
    assert left.removed
    assert left.after == left.before


def test_every_attack_that_was_carried_out_is_in_the_catalogue(left, catalogue):
    assert set(left.said) == {entry["id"] for entry in catalogue if "::test_left_behind[" in entry["test"]}
