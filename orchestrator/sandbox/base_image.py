"""The system that all images start from: pulled where an image registry is reachable, else made on this host.

The stand-in is a minimal system of the host's own Debian or Ubuntu release, made by mmdebstrap from
the package sources that the host's apt uses. It has apt, because every image above it installs packages.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.base import LABEL_CONTENT, Engine
from orchestrator.errors import ImageBuildError, ImageMissingError
from orchestrator.sandbox.image_build import LABEL_IMAGE

if TYPE_CHECKING:
    from orchestrator.sandbox.build_settings import BuildRoute
    from orchestrator.settings import Settings

_PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
_RECIPE = "1"  # raise it when the way the stand-in is made changes
_ROOM = 1_500_000_000  # bytes that making it needs at most
_FASTER = (
    "--dpkgopt=force-unsafe-io",  # it is thrown away when the machine fails half-way
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)

Say = Callable[[str], None]


def ensure_raw_base(engine: Engine, settings: Settings, route: BuildRoute, say: Say) -> str:
    """Return the reference of the system to start from, on the engine already, pulled, or made.

    Raises:
        ImageMissingError: it can't be pulled, and this host can't make a stand-in.
        ImageBuildError: making the stand-in failed.
    """
    if known := known_raw_base(engine, settings):
        return known
    release = debian_release()
    stand_in = release and _stand_in_tag(release)
    say(f"pulling {settings.base_image}")
    try:
        engine.pull(settings.base_image, on_line=say)
    except ImageMissingError as error:
        say(f"{settings.base_image} can't be pulled: {error.message}")
        if not release or not stand_in or os.geteuid() != 0:
            raise ImageMissingError(
                f"The base image {settings.base_image} can't be pulled, and only root on Debian or Ubuntu can make "
                f"a stand-in from the distribution's packages. The engine said: {error.message}",
                next_step="Give the engine access to an image registry, load an image with `docker load`, or name one "
                "that it has: SCHOOL_BASE_IMAGE=… (Debian-like, with apt and Python 3.11 or later).",
            ) from error
        _make_stand_in(engine, stand_in, release, route, say)
        return stand_in
    return settings.base_image


def known_raw_base(engine: Engine, settings: Settings) -> str | None:
    """Return the reference of the system to start from if the engine has one already."""
    if engine.image(settings.base_image):
        return settings.base_image
    release = debian_release()
    stand_in = release and _stand_in_tag(release)
    return stand_in if stand_in and engine.image(stand_in) else None


def debian_release(os_release: Path = Path("/etc/os-release")) -> tuple[str, str] | None:
    """Return distribution and code name of a Debian or Ubuntu host (``("debian", "bookworm")``), else None."""
    try:
        lines = os_release.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
    name, codename = fields.get("ID", ""), fields.get("VERSION_CODENAME", "")
    return (name, codename) if name in {"debian", "ubuntu"} and re.fullmatch(r"[a-z]+", codename) else None


def distribution_sources(codename: str, apt: Path = Path("/etc/apt")) -> str:
    """Return the host's apt sources of its distribution's own packages, in deb822 form.

    Third parties' sources are left out: their keys and packages have no place in an image.
    """
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    stanzas = []
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        if not path.is_file():
            continue
        text = "\n".join(
            line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
        )
        if path.suffix == ".sources":
            stanzas += [found for block in re.split(r"\n\s*\n", text) if (found := _deb822(block, suites))]
        elif path.suffix == ".list":
            stanzas += [found for line in text.splitlines() if (found := _one_line(line, suites))]
    return "\n\n".join(stanzas) + "\n" if stanzas else ""


def _deb822(block: str, suites: set[str]) -> str | None:
    fields: dict[str, str] = {}
    key = ""
    for line in block.splitlines():
        if line[:1].isspace():
            fields[key] = f"{fields.get(key, '')}\n{line}"
        else:
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    wanted = [suite for suite in fields.get("Suites", "").split() if suite in suites]
    if "deb" not in fields.get("Types", "").split() or "main" not in fields.get("Components", "").split():
        return None
    if not wanted or fields.get("Enabled", "yes").lower() == "no":
        return None
    fields |= {"Types": "deb", "Suites": " ".join(wanted)}
    return "\n".join(f"{name}: {value}" for name, value in fields.items())


def _one_line(line: str, suites: set[str]) -> str | None:
    match = re.fullmatch(
        r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<rest>.+)", line.strip()
    )
    if not match or match["suite"] not in suites or "main" not in match["rest"].split():
        return None
    stanza = f"Types: deb\nURIs: {match['uri']}\nSuites: {match['suite']}\nComponents: {match['rest'].strip()}"
    signed = re.search(r"signed-by=(\S+)", match["options"] or "")
    return f"{stanza}\nSigned-By: {signed[1]}" if signed else stanza


def _stand_in_tag(release: tuple[str, str]) -> str:
    return f"school/stand-in:{hashlib.sha256(chr(10).join([_RECIPE, *release, *_PACKAGES]).encode()).hexdigest()[:12]}"


def _make_stand_in(engine: Engine, tag: str, release: tuple[str, str], route: BuildRoute, say: Say) -> None:
    """Make the stand-in and hand it to the engine.

    Raises:
        ImageBuildError: a step failed; carries the end of its output.
    """
    distribution, codename = release
    say(f"making a stand-in from the packages of {distribution} {codename} (takes half a minute)")
    environment = {**os.environ, **route.args, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    if not shutil.which("mmdebstrap"):
        say("installing the package mmdebstrap on this host")
        _run(["apt-get", "update"], environment, say)
        _run(["apt-get", "install", "-y", "--no-install-recommends", "mmdebstrap"], environment, say)
    with tempfile.TemporaryDirectory(prefix="school-base-", dir=_roomy_folder()) as folder:
        archive = Path(folder) / "base.tar"
        sources = distribution_sources(codename)
        inputs = []
        if sources:
            (Path(folder) / "host.sources").write_text(sources, encoding="utf-8")
            inputs = [str(Path(folder) / "host.sources")]
        _run(
            [
                "mmdebstrap",
                "--mode=root",
                "--variant=minbase",
                f"--include={','.join(_PACKAGES)}",
                *_FASTER,
                codename,
                str(archive),
                *inputs,
            ],
            {**environment, "TMPDIR": folder},
            say,
        )
        say("handing it to the engine")
        engine.import_image(
            str(archive),
            tag=tag,
            changes=[
                "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "ENV LANG=C.UTF-8",
                'CMD ["python3"]',
                f"LABEL {LABEL_IMAGE}=stand-in {LABEL_CONTENT}={tag.rpartition(':')[2]}",
            ],
        )


def _roomy_folder() -> str | None:
    """Return memory-backed storage when it is large enough (it halves the time), else None for the usual place."""
    shared = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free >= _ROOM else None


def _run(argv: list[str], environment: dict[str, str], say: Say) -> None:
    tail: list[str] = []
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as process:
        if process.stdout:
            for line in process.stdout:
                say(line.rstrip())
                tail = [*tail[-40:], line]
    if process.returncode:
        raise ImageBuildError(
            f"`{' '.join(argv[:2])} …` ended with {process.returncode} while the base image was made.",
            log_tail="".join(tail),
            next_step="The end of its output says why; often it is the network or a package source in /etc/apt.",
        )
