"""Run a repository's setup commands in its tree, then take the tree away and keep what was installed elsewhere.

Files that the commands made in the tree (a compiled extension, a version module) are kept as well, as far as the
repository's own .gitignore names them: a leaf finds them in its worktree again, and they can't become part of a result.

Runs as root in the build, with network and without secrets. setup.json holds {"commands": [...], "version": "..."}.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
WORKSPACE = Path("/workspace")
KEPT = Path("/opt/school")
MADE = KEPT / "tree"  # orchestrator/layout.py: MADE_BY_SETUP
MADE_LIMIT = 64 << 20  # bytes; each start of a leaf copies them
NOT_MADE = {"node_modules", "target", "build", "dist", "venv", ".venv", ".tox", ".nox", "__pycache__"}
MODULES = Path("/node_modules")  # Node looks for modules in every folder above /workspace, npm for programs too


def environment(version: str) -> "dict[str, str]":
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    home = KEPT / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "HOME": str(home),  # readable by the student afterwards, unlike root's
        "CI": "true",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_CERT": bundle,
        "REQUESTS_CA_BUNDLE": bundle,
        "NODE_EXTRA_CA_CERTS": bundle,
        "CARGO_HTTP_CAINFO": bundle,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the image is this repository's alone
        # The tree has no .git here, and these tools would ask it for the version.
        "SETUPTOOLS_SCM_PRETEND_VERSION": version,
        "PBR_VERSION": version,
    }


def run(commands: "list[str]", version: str) -> None:
    shell = ["bash", "-eo", "pipefail", "-c"] if shutil.which("bash") else ["sh", "-ec"]
    for number, command in enumerate(commands, 1):
        print(f"school-setup: command {number} of {len(commands)}: {command}", flush=True)
        started = time.monotonic()
        process = subprocess.run(
            [*shell, command], cwd=WORKSPACE, env=environment(version), stdin=subprocess.DEVNULL, check=False
        )
        if code := process.returncode:
            print(f"school-setup: command {number} ended with {code}", flush=True)
            sys.exit(code if 0 < code < 126 else 1)
        print(f"school-setup: command {number} took {time.monotonic() - started:.0f} s", flush=True)


def files_of_the_tree() -> "set[str]":
    found = set()
    for folder, _, names in os.walk(WORKSPACE):
        found.update(str(Path(folder, name).relative_to(WORKSPACE)) for name in names)
    return found


def ignore_rules() -> "dict[str, bytes]":
    """The .gitignore files of the tree, before any command could change them."""
    return {
        str(path.relative_to(WORKSPACE)): path.read_bytes() for path in WORKSPACE.rglob(".gitignore") if path.is_file()
    }


def ignored(names: "list[str]", rules: "dict[str, bytes]") -> "list[str]":
    """Those of the names that the rules ignore, as git says."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in rules.items():
            path = Path(scratch, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        subprocess.run(["git", "init", "-q", scratch], check=True)
        answer = subprocess.run(
            ["git", "-C", scratch, "check-ignore", "--no-index", "-z", "--stdin"],
            input=b"\0".join(os.fsencode(name) for name in names) + b"\0",
            stdout=subprocess.PIPE,
            check=False,  # 1: none of them
        )
    return [os.fsdecode(name) for name in answer.stdout.split(b"\0")[:-1]]


def keep_what_was_made(before: "set[str]", rules: "dict[str, bytes]") -> None:
    new = [name for name in sorted(files_of_the_tree() - before) if (WORKSPACE / name).is_file()]
    left_out = {part for name in new for part in Path(name).parts[:-1] if part in NOT_MADE} - {"__pycache__"}
    wanted = [name for name in new if not NOT_MADE.intersection(Path(name).parts) and not name.endswith(".pyc")]
    kept = [
        name for name in (ignored(wanted, rules) if wanted and rules else []) if not (WORKSPACE / name).is_symlink()
    ]
    if sum((WORKSPACE / name).stat().st_size for name in kept) > MADE_LIMIT:
        print(f"school-setup: more than {MADE_LIMIT >> 20} MB were made in the tree; none of it is kept", flush=True)
        return
    for name in kept:
        target = MADE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(WORKSPACE / name, target)
    if kept:
        print(f"school-setup: kept from the tree: {', '.join(kept[:8])}{' …' if len(kept) > 8 else ''}", flush=True)
    if lost := sorted({name.split("/")[0] for name in wanted} - {name.split("/")[0] for name in kept} | left_out):
        print(f"school-setup: made in the tree and not kept: {', '.join(lost[:8])}", flush=True)


def keep_node_modules() -> None:
    """Move node_modules out of the tree. Links into the tree (workspaces) are led to where a leaf has its own."""
    found = WORKSPACE / "node_modules"
    if not found.is_dir() or MODULES.exists():
        return
    for link in [*found.glob("*"), *found.glob("@*/*")]:
        if link.is_symlink():
            target = Path(os.path.normpath(link.parent / link.readlink()))
            if target.is_relative_to(WORKSPACE) and not target.is_relative_to(found):
                link.unlink()
                link.symlink_to(target)
    shutil.move(str(found), str(MODULES))
    print(f"school-setup: node_modules is at {MODULES}", flush=True)


def main() -> None:
    plan = json.loads((HERE / "setup.json").read_text())
    KEPT.mkdir(parents=True, exist_ok=True)
    before, rules = files_of_the_tree(), ignore_rules()
    run(plan["commands"], plan["version"])
    keep_node_modules()
    keep_what_was_made(before, rules)
    for path in WORKSPACE.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    subprocess.run(["chmod", "-R", "a+rX", *(str(path) for path in (KEPT, MODULES) if path.exists())], check=True)


if __name__ == "__main__":
    main()
