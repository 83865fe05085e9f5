#!/bin/sh
# Make the virtual environment FOLDER with this project in it, for development: tools/venv.sh FOLDER
# On Debian or Ubuntu, as root, a missing venv module is installed; anybody else is told what to type.
set -eu

folder=$1

say() { printf '%s\n' "$*" >&2; }

usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if command -v "$candidate" >/dev/null 2>&1 && usable "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

if ! python=$(find_python); then
    say "Python 3.11 or later is needed; found: $(python3 --version 2>&1 || true)"
    say "Install one (\`sudo apt-get install python3\` on Debian 12 or later, Ubuntu 24.04 or later), or say where it is: make PYTHON=/path/to/python3.12 up"
    exit 2
fi

# The module venv is there without ensurepip on a bare Debian: ask for both.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    # python3-venv belongs to the distribution's default Python; another one has a package of its own.
    package=python3-venv
    if [ "$("$python" -c 'import sys; print(sys.version_info[:2])')" != "$(/usr/bin/python3 -c 'import sys; print(sys.version_info[:2])' 2>/dev/null || true)" ]; then
        package=$version-venv
    fi
    if [ "$(id -u)" = 0 ] && grep -Eq '^ID="?(debian|ubuntu)"?$' /etc/os-release 2>/dev/null; then
        say "$python has no venv module: installing the package $package"
        DEBIAN_FRONTEND=noninteractive apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package"
    else
        say "$python has no venv module. Install it: sudo apt-get install $package"
        exit 2
    fi
fi

if [ -x "$folder/bin/python" ] && ! usable "$folder/bin/python"; then
    say "making $folder again: its Python is gone or too old"
    rm -rf "$folder"
fi
if [ ! -x "$folder/bin/python" ]; then
    say "making $folder with $("$python" --version)"
    "$python" -m venv "$folder"
fi
say "installing the project and its tools into $folder"
"$folder/bin/python" -m pip install --disable-pip-version-check --progress-bar off -e '.[dev]'
