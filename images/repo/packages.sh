#!/bin/sh
# Install the packages of the distribution that a repository asks for, one a line.
set -eu
packages=$(cat "$1")
if [ -z "$packages" ]; then
    exit 0
fi
echo "school-setup: packages:" $packages
if command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y --no-install-recommends $packages
    rm -rf /var/lib/apt/lists/*
elif command -v apk >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    apk add --no-cache $packages
else
    echo "school-setup: this image has neither apt nor apk, so [student] packages can't be installed"
    exit 1
fi
