"""``school gateway``: providers, aliases, and whether they answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli.terminal import print_json
from orchestrator.errors import GatewayError

if TYPE_CHECKING:
    from orchestrator.cli.terminal import Terminal

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
gateway = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Providers and aliases of the model gateway.")
app.add_typer(gateway, name="gateway")

JSON = typer.Option(False, "--json", help="JSON on stdout.")


@gateway.command()
def add(
    name: str = typer.Argument(..., help="anthropic, openai, openrouter, ollama, or a name of your own."),
    models: str = typer.Option("", "--models", help="MODEL[,MODEL]: tried in this order."),
    base_url: str | None = typer.Option(None, "--base-url", help="For a name of your own: the API's address."),
    wire: str | None = typer.Option(None, "--wire", help="openai or anthropic [default: openai, or the preset's]."),
    key_env: str | None = typer.Option(None, "--key-env", help="Environment variable that holds the key."),
    key_file: str | None = typer.Option(None, "--key-file", help="File that holds the key."),
    price: str | None = typer.Option(
        None, "--price", help="INPUT/OUTPUT in USD per million tokens; unknown otherwise."
    ),
) -> None:
    """Add a provider, or replace it; the aliases then point at real models only."""
    from orchestrator.gateway.providers import add_provider
    from orchestrator.principal.gateways import kept_only_if_it_works, require_key, shipped_config
    from orchestrator.settings import settings

    with kept_only_if_it_works():
        provider = add_provider(
            settings().home().ensure(),
            shipped_config(),
            name,
            models=[model.strip() for model in models.split(",") if model.strip()],
            base_url=base_url,
            wire=wire,
            key_env=key_env,
            key_file=key_file,
            price=price,
        )
        require_key(provider)
        _apply(f"provider {provider.name}: {', '.join(model.name for model in provider.models)}")


@gateway.command()
def remove(name: str = typer.Argument(..., help="A provider that was added.")) -> None:
    """Remove a provider."""
    from orchestrator.gateway.providers import remove_provider
    from orchestrator.principal.gateways import shipped_config
    from orchestrator.settings import settings

    remove_provider(settings().home().ensure(), shipped_config(), name)
    _apply(f"provider {name} is removed")


@gateway.command()
def use(
    url: str = typer.Argument(..., help="http://HOST:PORT of an OmniRoute that runs, or `own` for the school's own."),
    admin_password_file: str | None = typer.Option(None, "--admin-password-file", help="File with its admin password."),
    key_file: str | None = typer.Option(None, "--key-file", help="File with one key for all, without the password."),
) -> None:
    """Use an OmniRoute that you already run."""
    from orchestrator.gateway.providers import use_gateway
    from orchestrator.principal.gateways import kept_only_if_it_works, shipped_config
    from orchestrator.settings import settings

    with kept_only_if_it_works():
        warnings = use_gateway(
            settings().home().ensure(),
            shipped_config(),
            None if url == "own" else url,
            admin_password_file=admin_password_file,
            shared_key_file=key_file,
        )
        for text in warnings:
            print(f"note: {text}", file=sys.stderr)
        _apply("the school's own OmniRoute" if url == "own" else f"the OmniRoute at {url}")


@gateway.command("list")
def list_(as_json: bool = JSON) -> None:
    """List providers and aliases."""
    from orchestrator.principal.gateways import describe

    found = describe()
    if as_json:
        print_json(found)
        return
    terminal = _terminal()
    terminal.line(f"gateway  {found['url']}")
    rows = [[p["name"], p["base_url"], p["key"], ", ".join(p["models"])] for p in found["providers"]]
    terminal.table(rows, ["PROVIDER", "ADDRESS", "KEY", "MODELS"])
    terminal.line()
    rows = [[a["name"], ", ".join(a["targets"]) or "no model fits", a["about"]] for a in found["aliases"]]
    terminal.table(rows, ["ALIAS", "POINTS AT", "FOR"])
    if not found["real"]:
        terminal.line("\nno real model yet: `rehearsal` is a script that answers in its place")


@gateway.command("test")
def try_aliases(
    alias: list[str] | None = typer.Argument(None, help="Aliases [default: all that have a model]."),
    as_json: bool = JSON,
) -> None:
    """Make one small call through each alias, and show how long it took."""
    from orchestrator.principal.gateways import probe

    results = probe(tuple(alias or ()), _say)
    if as_json:
        print_json(results)
    else:
        rows: list[list[Any]] = [
            [r["alias"], "ok" if r["ok"] else "failed", f"{r['milliseconds']:.0f} ms", r["model"], r["detail"]]
            for r in results
        ]
        _terminal().table(rows, ["ALIAS", "ANSWER", "TIME", "MODEL", "DETAIL"])
    failed = [r["alias"] for r in results if not r["ok"]]
    if failed:
        raise GatewayError(
            f"{len(failed)} alias(es) did not answer: {', '.join(failed)}.",
            next_step="See what the provider said above; check its key and models: school gateway list",
        )


def _apply(what: str) -> None:
    from orchestrator.principal.gateways import apply

    if apply(_say):
        print(f"{what}: in use now", file=sys.stderr)
    else:
        print(f"{what}: written; it counts from the next `school up`", file=sys.stderr)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _terminal() -> Terminal:
    from orchestrator.cli.terminal import Terminal

    return Terminal(sys.stdout)
