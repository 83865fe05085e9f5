"""Fetch npm packages as they were published, check each against its digest, and unpack it under its name."""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path


def main(pins: Path, npm: "list[str]") -> None:
    for name, pin in json.loads(pins.read_text()).items():
        print(f"fetching {name} {pin['version']}", flush=True)
        command = [*npm, "pack", "--ignore-scripts", "--silent", f"{name}@{pin['version']}"]
        archive = Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != pin["sha512"]:
            sys.exit(f"{archive} has sha512 {found}, expected {pin['sha512']}: it is not the package that was pinned.")
        with tarfile.open(archive) as tar:
            tar.extractall(".")  # noqa: S202 - the digest says what is in it
        Path("package").rename(name)
        archive.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
