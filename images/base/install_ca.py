"""Make the certificates of a bundle trusted in this image: those that it does not trust already.

They go where the distribution looks for local ones, so that a later update of its own certificates keeps them.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
LOCAL = Path("/usr/local/share/ca-certificates")
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def certificates(data: bytes) -> "dict[str, bytes]":
    """Return the certificates of a PEM bundle by a digest of their content, line ends left aside."""
    found = (match.group(0) for match in CERTIFICATE.finditer(data))
    return {hashlib.sha256(b"".join(pem.split())).hexdigest()[:16]: pem + b"\n" for pem in found}


def main(bundle: Path) -> None:
    known = certificates(SYSTEM_BUNDLE.read_bytes()) if SYSTEM_BUNDLE.exists() else {}
    extra = {key: pem for key, pem in certificates(bundle.read_bytes()).items() if key not in known}
    if not extra:
        return
    LOCAL.mkdir(parents=True, exist_ok=True)
    for key, pem in extra.items():
        (LOCAL / f"host-{key}.crt").write_bytes(pem)
    if shutil.which("update-ca-certificates"):
        subprocess.run(["update-ca-certificates"], check=True)
    else:
        SYSTEM_BUNDLE.parent.mkdir(parents=True, exist_ok=True)
        with SYSTEM_BUNDLE.open("ab") as file:
            file.writelines(extra.values())
    print(f"{len(extra)} certificates of the host are trusted now")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
