"""Prints docs/configuration.md, made from the settings and the keys that the code reads.

``python tools/configuration_doc.py > docs/configuration.md``, in an environment in which the project is installed.
A test compares the file with what this prints, so that no setting can be added without its line.
"""  # noqa: INP001 - a program beside the package, not part of it

from __future__ import annotations

import sys
import textwrap
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from orchestrator.sandbox import repo_config
from orchestrator.settings import UNPREFIXED, Settings

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

HEAD = """\
# Configuration

This page is generated from `orchestrator/settings.py` by `tools/configuration_doc.py`; change it there.

## Where a setting is read from

Strongest first:

1. the command line (`school spawn --timeout 600`, …),
2. the environment,
3. `<home>/.env`,
4. `<home>/school/config.toml`,
5. the default.

`<home>` is the folder that `SCHOOL_HOME` names in the environment, by default `~/.hermes`; no file can move it. A
`.env` in the current folder or in a repository is never read. The home's `.env` may be Hermes' own, so names in it
that are no settings are ignored; `config.toml` is the school's alone, so an unknown name in it is an error. An empty
variable counts as unset. A value that is not valid ends the command with exit code 2 and the setting's name.

In `.env` a setting has the name of its variable; in `config.toml` it has the name of the first column:

```toml
student_timeout = 1800
student_memory = "4g"
```

`school status --verbose` shows the settings in force. Sizes are written with k, m, g or t (powers of 1024), times
are seconds unless the meaning says otherwise.

## Settings
"""

PREFIX = """
All variables take the prefix `SCHOOL_`. Those with a second name are read under it as well: it is the name that the
school's contract with its teachers uses.
"""

SECTIONS = {
    "school_home": "Where things are",
    "handoff_timeout": "Waiting and reviewing",
    "student_timeout": "A student's limits",
    "max_beads": "How much at once",
    "default_agent": "Agents and models",
    "build_ca": "Building images",
    "tracker": "Tasks, mail and staff",
    "janitor": "What is kept, and who removes",
}
"""Titles, each by the setting before which it stands; the order is that of the declarations."""

OTHER = {
    "The container engine": {
        "`DOCKER_HOST`": "The engine's address. Asked first; set and without an answer there, it is an error.",
        "`DOCKER_CONTEXT`, `DOCKER_CONFIG`": "The docker context to use, and the folder in which contexts are kept.",
        "`DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`": "TLS for a `DOCKER_HOST` over TCP, as the docker client reads them.",
        "`XDG_RUNTIME_DIR`": "Where the socket of a rootless engine is looked for.",
    },
    "Image builds": {
        "`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`": "Used when `SCHOOL_BUILD_PROXY` is not set; lower case counts too.",
        "`PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`, `PIP_TRUSTED_HOST`, `PIP_DEFAULT_TIMEOUT`, `NPM_CONFIG_REGISTRY`, "
        "`GOPROXY`, `GOSUMDB`": "Handed to builds, unless they hold a password. The host's `pip.conf` is read too.",
    },
    "Mail": {
        "`AGENTMAIL_API_KEY`": "AgentMail's key; or the file `<home>/school/keys/agentmail`.",
        "`SCHOOL_MAIL_PASSWORD`": "Password of the mailbox over SMTP and IMAP; or `<home>/school/keys/mail-password`.",
    },
    "The terminal": {
        "`NO_COLOR`": "Any text: no colours.",
        "`TERM`": "`dumb`: no colours.",
    },
    "`make`": {
        "`PYTHON`": "An interpreter >= 3.11 for the virtual environment.",
        "`FORCE`": "`FORCE=1 make down` stops the standing parts although beads run.",
    },
    "Tests": {
        "`SCHOOL_FAULT_AT`": "A point of a bead's way at which the principal kills itself (`orchestrator/faults.py`).",
        "`SCHOOL_FAULT_TRACE`": "A file to which the names of the points passed are written.",
    },
}

REPOSITORY = {
    "student.packages": "Packages of the image's distribution, installed first.",
    "student.setup": "Commands that bring the dependencies; run in the tree at `/workspace` while the image is built, "
    "as root, with network, without secrets.",
    "student.image": "Start from this image instead of the plain student's.",
    "student.dockerfile": "Start from what this file of the repository builds. Excludes `image`.",
    "student.cache_files": "Patterns of further files whose change asks for a new set-up; manifests and lock files "
    "always do.",
    "verify.command": "The check that the work must pass; `--verify` overrides it.",
    "egress.allow": "Places that students may reach through the gate, `NAME:PORT` each; counts as far as "
    "`SCHOOL_EGRESS_ALLOW` names them too.",
    "objects.mode": "`shared` (default): the student can read all objects of the repository. `reachable`: only what "
    "the base commit reaches is copied for it.",
}


def _kind(field: FieldInfo) -> str:
    """Return a setting's type in words."""
    annotation = field.annotation
    if get_origin(annotation) is UnionType:
        annotation = next(kind for kind in get_args(annotation) if kind is not NoneType)
    if get_origin(annotation) is Literal:
        return " \\| ".join(f"`{choice}`" for choice in get_args(annotation))
    kinds = {bool: "`true` \\| `false`", int: "whole number", float: "number", str: "text"}
    return kinds.get(annotation, "path")  # type: ignore[arg-type]


def _default(name: str, field: FieldInfo) -> str:
    if name == "school_home":
        return "`~/.hermes`"
    return "" if field.default is None else f"`{field.default}`"


def _variables(name: str) -> str:
    if name == "school_home":
        return "`SCHOOL_HOME`"
    plain = f", `{name.upper()}`" if name in UNPREFIXED else ""
    return f"`SCHOOL_{name.upper()}`{plain}"


def _settings() -> list[str]:
    lines: list[str] = []
    for name, field in Settings.model_fields.items():
        if title := SECTIONS.get(name):
            lines += [
                "",
                f"### {title}",
                "",
                "| setting | environment | default | type | meaning |",
                "|---|---|---|---|---|",
            ]
        cells = (f"`{name}`", _variables(name), _default(name, field), _kind(field), field.description or "")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines[1:], ""]


def _other() -> list[str]:
    lines = ["## Other variables of the environment", ""]
    lines += ["They are not settings: no file is read for them.", "", "| variable | what it does |", "|---|---|"]
    for title, variables in OTHER.items():
        lines += [f"| **{title}** | |", *(f"| {name} | {text} |" for name, text in variables.items())]
    return [*lines, ""]


def _repository() -> list[str]:
    lines = ["## A repository's own settings: `.school.toml`", ""]
    lines += textwrap.wrap(
        "Read from the base commit of a task, never from the working tree: an edit counts once it is committed. "
        "`school setup --repo PATH` proposes one. Unknown keys are errors.",
        118,
    )
    lines += ["", "| key | type | meaning |", "|---|---|---|"]
    for section, keys in repo_config.KEYS.items():
        for key, kind in keys.items():
            name = f"{section}.{key}"
            lines.append(f"| `{name}` | {'list of texts' if kind is list else 'text'} | {REPOSITORY[name]} |")
    lines += ["", "```toml", *_example(), "```", "", REPOSITORY_IMAGE]
    return lines


REPOSITORY_IMAGE = """\
What is built is kept: a new image only for other commands or packages, another manifest or lock file, another file that
a command names or that `cache_files` matches, or another image below. The tree itself is left out of the image; a
student and the check have a checkout of their own at `/workspace`. Two things that a setup makes in the tree are there
all the same:

- files that the repository's `.gitignore` names, such as a compiled extension or a version module, up to 64 MB (not
  what lies in `build`, `dist`, `target`, `.venv` and the like);
- `node_modules`, at `/node_modules`, where Node and npm look for it too.

A check of compiled code compiles it itself, from what the student left:
`python3 setup.py -q build_ext --inplace && python3 -m pytest -q`.
"""


def _example() -> list[str]:
    """Return the example in the docstring of the module that reads the file."""
    _, _, block = (repo_config.__doc__ or "").partition("::\n\n")
    return textwrap.dedent(block).strip().splitlines()


def document() -> str:
    """Return the page."""
    return "\n".join([HEAD + PREFIX, *_settings(), *_other(), *_repository()]).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
