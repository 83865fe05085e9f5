#!/bin/sh
# Runs as root in the build of a repository's own image. Debian-like (apt) and Alpine-like (apk) images gain what
# is missing; any other must have it.
set -eu

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# The image's own python3 may be older, on purpose: the entry point takes the first that is new enough.
find_python() {
    for candidate in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

wanted=
for tool in git bash; do
    command -v "$tool" >/dev/null 2>&1 || wanted="$wanted $tool"
done
test -e /etc/ssl/certs/ca-certificates.crt || wanted="$wanted ca-certificates"
find_python >/dev/null || wanted="$wanted python3"

if [ -n "$wanted" ]; then
    echo "adding:$wanted"
    if command -v apt-get >/dev/null 2>&1; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update
        # shellcheck disable=SC2086 # a list of words
        apt-get install -y --no-install-recommends $wanted
        rm -rf /var/lib/apt/lists/*
    elif command -v apk >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        apk add --no-cache $wanted
    else
        echo "school-adopt: this image lacks$wanted, and has neither apt nor apk to add it"
        exit 1
    fi
fi

if ! python=$(find_python); then
    echo "school-adopt: this image has no Python 3.11 or later, and its distribution offers none; the entry point of a leaf needs it"
    exit 1
fi
mkdir -p /school/bin /workspace
ln -sf "$python" /school/bin/python3
if ! command -v python3 >/dev/null 2>&1 || ! fits python3; then
    echo "note: python3 of this image is not the one that the entry point uses ($python)"
fi
"$python" /school/build/install_ca.py /school/build/ca.pem
