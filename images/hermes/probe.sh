#!/bin/sh
# Says whether the Hermes layer runs on this image: 0 and its version, or 1 and what to do instead.
# It needs Linux of the layer's own architecture and a /bin/sh; the C library is the layer's own.
here=${0%/bin/probe}
if version=$("$here/bin/python" -I -c '
import importlib.metadata
import run_agent
print(importlib.metadata.version("hermes-agent"))' 2>&1); then
    printf 'hermes-agent %s\n' "${version##*
}"
    exit 0
fi
printf '%s\nThe Hermes layer does not run on this image (%s). Use --agent light.\n' "$version" "$(uname -m)" >&2
exit 1
