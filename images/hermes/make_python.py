"""Make a Python that runs from its folder on any Linux of this architecture, its C library included.

``copy FOLDER`` puts the running interpreter and its standard library there; ``finish FOLDER``, once packages are
installed, leaves out what is never run, brings every shared library that anything in the folder needs, and compiles.

The libraries are found through RPATH in the files themselves, and the program names its own loader: an
environment variable instead (LD_LIBRARY_PATH, PYTHONHOME) would reach each command that the agent runs, where the
repository's own Python and libraries must be seen.
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

UNUSED_STDLIB = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data")
NOT_COPIED = (
    "__pycache__",
    "site-packages",
    "dist-packages",
    "config-*",
    "*.a",
    "EXTERNALLY-MANAGED",
    "sitecustomize.py",
)
FOUND = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
LOADER = re.compile(r"ld-linux[^/]*\.so\.\d+$|ld-\d[^/]*\.so$")


def copy(target: Path) -> None:
    """Copy the interpreter that runs this and its standard library."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (target / "bin").mkdir(parents=True)
    shutil.copy2(os.path.realpath(sys.executable), target / "bin" / version)
    for name in ("python", "python3"):
        (target / "bin" / name).symlink_to(version)
    library = target / "lib" / version
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        library,
        ignore=shutil.ignore_patterns(*NOT_COPIED, *UNUSED_STDLIB),
        symlinks=False,
    )
    (library / "site-packages").mkdir()
    bring_libraries(target)


def finish(target: Path) -> None:
    """Prune, bring the packages' libraries, compile."""
    for folder in sorted(target.rglob("__pycache__")):
        shutil.rmtree(folder)
    for pattern in ("*.pyi", "*.a", "*.c", "*.h", "*.pyx", "*.pxd"):
        for path in target.rglob(pattern):
            path.unlink()
    bring_libraries(target)
    # unchecked: a copied layer may lose the sources' times, and a start that compiles takes 17 s instead of 2
    compileall.compile_dir(
        target / "lib", quiet=2, workers=0, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )


def bring_libraries(target: Path) -> None:
    """Copy every shared library that a file in ``target`` takes from outside, and make the files find the copies."""
    libraries = target / "lib"
    elfs = [path for path in target.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
    for elf in elfs:
        if LOADER.search(elf.name) or elf.parent == libraries:
            continue
        needed = [(name, Path(path)) for name, path in FOUND.findall(ldd(elf))]
        outside = [(name or path.name, path) for name, path in needed if target not in path.parents]
        for name, path in outside:
            bring(path, libraries / Path(name).name)
        if outside and elf.parent.name != "bin":
            add_rpath(elf, libraries)
    for program in (target / "bin").iterdir():
        if program.is_file() and not program.is_symlink() and is_elf(program):
            add_rpath(program, libraries)
            loader = next(path for path in libraries.iterdir() if LOADER.search(path.name))
            subprocess.run(["patchelf", "--set-interpreter", str(loader), str(program)], check=True)


def bring(source: Path, copied: Path) -> None:
    """Copy one library under the name it is asked for."""
    if copied.exists():
        return
    shutil.copy2(source.resolve(), copied)
    copied.chmod(0o755)
    if not LOADER.search(copied.name):
        add_rpath(copied, copied.parent)


def add_rpath(elf: Path, libraries: Path) -> None:
    """Let a file look into ``libraries`` as well; as RPATH, so that what it loads does so too."""
    known = subprocess.run(["patchelf", "--print-rpath", str(elf)], check=True, capture_output=True, text=True)
    own = "$ORIGIN/" + os.path.relpath(libraries, elf.parent)
    entries = [entry for entry in known.stdout.strip().split(":") if entry]
    if own not in entries:
        new = ":".join([*entries, own])
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", new, str(elf)], check=True)


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def ldd(elf: Path) -> str:
    return subprocess.run(["ldd", str(elf)], check=False, capture_output=True, text=True).stdout


if __name__ == "__main__":
    {"copy": copy, "finish": finish}[sys.argv[1]](Path(sys.argv[2]))
