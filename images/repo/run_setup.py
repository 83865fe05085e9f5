"""Run a repository's setup commands in its tree, then take the tree away and keep what was installed elsewhere.

Runs as root in the build, with network and without secrets. setup.json holds {"commands": [...], "version": "..."}.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
WORKSPACE = Path("/workspace")
KEPT = Path("/opt/school")
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
    run(plan["commands"], plan["version"])
    keep_node_modules()
    for path in WORKSPACE.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    subprocess.run(["chmod", "-R", "a+rX", *(str(path) for path in (KEPT, MODULES) if path.exists())], check=True)


if __name__ == "__main__":
    main()
