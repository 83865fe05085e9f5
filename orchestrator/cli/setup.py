"""``school setup``: what a repository's students need, as a proposal for its ``.school.toml``."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from orchestrator.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def setup(
    repo: Path = typer.Option(..., "--repo", "-r", help="A folder inside a git repository."),
    base: str | None = typer.Option(None, help="Commit to read [default: the current one]."),
    write: bool = typer.Option(False, "--write", help="Put it in the working tree; it counts once committed."),
    build: bool = typer.Option(False, "--build", help="Build the image from the committed .school.toml now."),
    agent: str = typer.Option("auto", help="With --build: the agent that the image is for, as of school spawn."),
) -> None:
    """Read the repository's manifests and print a proposal for .school.toml."""
    from orchestrator.cli.terminal import Terminal, safe
    from orchestrator.git.repository import is_ignored, open_repository, resolve_base
    from orchestrator.principal.prepare import tree_at
    from orchestrator.sandbox.repo_config import FILE
    from orchestrator.sandbox.repo_proposal import propose

    terminal = Terminal(sys.stderr)
    opened = open_repository(repo)
    tree = tree_at(opened, resolve_base(opened, base))
    if build:
        _build(tree, terminal, agent)
        return
    text = propose(tree)
    if not write:
        print(safe(text, limit=100_000, lines=True), end="", flush=True)
        terminal.line(f"nothing was written; --write puts this into {safe(opened.root)}/{FILE}")
        if tree.read(FILE) is not None:
            terminal.line(f"the commit has a {FILE} already: that one counts, this is what would be proposed now")
        return
    target = opened.root / FILE
    if target.exists() or target.is_symlink():
        raise UsageError(
            f"{target} exists already.", next_step=f"Remove it first, or compare: school setup --repo '{opened.root}'"
        )
    target.write_text(text, encoding="utf-8")
    print(safe(text, limit=100_000, lines=True), end="", flush=True)
    where = f"git -C '{safe(opened.root)}'"
    terminal.line(f"wrote {safe(target)}; only a committed {FILE} counts. Read it, mend it, then")
    force = "-f " if is_ignored(opened, FILE) else ""  # a .gitignore with a line like `.*`
    terminal.line(f"  commit: {where} add {force}{FILE} && {where} commit -m 'Say what students need'")
    terminal.line(f"  try:    school setup --repo '{safe(opened.root)}' --build")


def _build(tree: object, terminal: object, agent: str) -> None:
    from orchestrator.cli.terminal import Terminal, safe
    from orchestrator.principal.prepare import choose_agent
    from orchestrator.principal.request import AGENTS
    from orchestrator.principal.school import open_school
    from orchestrator.sandbox.repo_config import read_config
    from orchestrator.sandbox.repo_tree import RepoTree

    assert isinstance(tree, RepoTree)  # noqa: S101 - lazily imported types
    assert isinstance(terminal, Terminal)  # noqa: S101
    if agent not in AGENTS:
        raise UsageError(f"--agent is {agent!r}.", next_step=f"Use one of: {', '.join(AGENTS)}.")
    config = read_config(tree.read)

    def say(line: str) -> None:
        terminal.line(safe(line))

    with open_school(say) as school:
        rehearsal = school.alias(school.settings.student_model).rehearsed
        hermes = choose_agent(agent, school.settings, rehearsal=rehearsal) == "hermes"
        image = school.student_image(config, tree, hermes=hermes, say=say)
    terminal.line("the image of this repository's students and of its check:")
    print(image)
