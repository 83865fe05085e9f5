"""Put together the files that OmniRoute needs to run, and nothing else."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

NODE = Path("/opt/node/bin/node")
SQLITE = Path("/build/better-sqlite3/build/Release/better_sqlite3.node")
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
NAME_SERVICE = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")


def libraries(binary: Path) -> "set[Path]":
    """Return the shared libraries of a binary, the loader among them, at the paths where it looks for them."""
    output = subprocess.run(["ldd", str(binary)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", output)}


def put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)  # follows links: the file itself, under the name that is looked for


def main(root: Path) -> None:
    needed = libraries(NODE) | libraries(SQLITE)
    folder = next(path.parent for path in needed if path.name.startswith("libc.so"))
    needed |= {folder / name for name in NAME_SERVICE if (folder / name).exists()}
    for path in sorted(needed):
        put(path, root / path.relative_to("/"))
    put(NODE, root / "usr/local/bin/node")
    put(BUNDLE, root / BUNDLE.relative_to("/"))
    for name in ("start.mjs", "health.mjs"):
        put(Path(name), root / "school" / name)

    app = root / "app"
    shutil.copytree("omniroute/app", app, symlinks=True)
    put(SQLITE, app / "node_modules/better-sqlite3/build/Release/better_sqlite3.node")
    for example in app.rglob(".env*"):
        example.unlink()  # the server would read it
    for build in (app / "node_modules/koffi/build/koffi").iterdir():
        if not build.name.startswith("linux_"):
            shutil.rmtree(build)

    (root / "etc/passwd").write_text("school:x:10001:10001::/data:/sbin/nologin\n")
    (root / "etc/group").write_text("school:x:10001:\n")
    subprocess.run(["chmod", "-R", "a+rX", str(root)], check=True)
    # A fresh volume takes the mode of the folder that it is mounted over: the uid is chosen at run time.
    for name in ("data", "tmp"):
        (root / name).mkdir()
        (root / name).chmod(0o777 if name == "data" else 0o1777)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
