"""Providers and aliases: what the two files come to, and what is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import ConfigError, UsageError
from orchestrator.gateway.config import Price, home_file, load_config
from orchestrator.gateway.providers import add_provider, parse_price, remove_provider, use_gateway
from orchestrator.home import Home

SHIPPED = Path(__file__).parents[3] / "config" / "gateway.yaml"


@pytest.fixture
def home(tmp_path):
    root = tmp_path / "home"
    return Home(root, root / "bookbag", root / "signals", root / "locks").ensure()


def write(home, text):
    home_file(home).write_text(text)


def test_without_a_provider_every_alias_is_rehearsed_and_says_so(home):
    config = load_config(SHIPPED, home)
    assert not config.real
    assert {"auto/coding:reliable", "auto/review", "auto/best-free", "rehearsal"} <= set(config.aliases)
    assert all(alias.rehearsed for alias in config.aliases.values())
    assert config.rehearsal_models(["auto/review"]) == ["auto/review"]
    assert config.prices(["rehearsal"]) == {"rehearsal": {"input": 0.0, "output": 0.0}}


@pytest.mark.parametrize(
    ("preset", "wire", "host", "key_env"),
    [
        ("anthropic", "anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("openai", "openai", "api.openai.com", "OPENAI_API_KEY"),
        ("openrouter", "openai", "openrouter.ai", "OPENROUTER_API_KEY"),
        ("ollama", "openai", "172.17.0.1", None),
    ],
)
def test_a_preset_knows_wire_address_and_key(home, preset, wire, host, key_env):
    provider = add_provider(home, SHIPPED, preset, models=["m"])
    assert (provider.wire, provider.key_env) == (wire, key_env)
    assert host in provider.base_url


def test_once_a_provider_exists_no_alias_but_its_own_is_rehearsed(home):
    add_provider(home, SHIPPED, "anthropic", models=["big", "small"], price="3/15")
    add_provider(home, SHIPPED, "ollama", models=["local"])
    config = load_config(SHIPPED, home)
    reliable = config.alias("auto/coding:reliable")
    assert reliable.targets == ("anthropic/big", "anthropic/small", "ollama/local")
    assert reliable.price == Price(3.0, 15.0)  # the dearest that may answer
    assert config.alias("auto/best-free").targets == ("ollama/local",)
    assert [name for name, alias in config.aliases.items() if alias.rehearsed] == ["rehearsal"]
    for alias in config.aliases.values():
        assert alias.rehearsed or not any(target.startswith("rehearsal/") for target in alias.targets)


def test_an_alias_with_one_unknown_price_has_an_unknown_price(home):
    add_provider(home, SHIPPED, "openai", models=["a"], price="1/2")
    add_provider(home, SHIPPED, "anthropic", models=["b"])
    config = load_config(SHIPPED, home)
    assert config.prices(["auto/review"]) == {"auto/review": None}


def test_an_alias_that_no_model_fits_is_an_error_when_it_is_used(home):
    add_provider(home, SHIPPED, "openai", models=["a"], price="1/2")
    config = load_config(SHIPPED, home)
    assert config.aliases["auto/best-free"].targets == ()
    with pytest.raises(ConfigError, match="No model fits the alias 'auto/best-free'"):
        config.alias("auto/best-free")
    with pytest.raises(ConfigError, match="There is no model alias 'gpt'"):
        config.alias("gpt")


def test_a_home_chooses_what_an_alias_means_and_adds_its_own(home):
    add_provider(home, SHIPPED, "openai", models=["a", "b"])
    data = yaml.safe_load(home_file(home).read_text())
    data["aliases"] = {"auto/review": "openai/b", "team/fast": ["openai/a"]}
    write(home, yaml.safe_dump(data))
    config = load_config(SHIPPED, home)
    assert config.alias("auto/review").targets == ("openai/b",)
    assert config.alias("team/fast").targets == ("openai/a",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "can't be read"),
        ("version: 2", "version must be 1"),
        ("{version: 1, provider: {}}", "unknown: provider"),
        ("{version: 1, providers: {Bad Name: {}}}", "a name is 1 to 32"),
        ("{version: 1, providers: {rehearsal: {base_url: 'http://a/v1'}}}", "not 'rehearsal'"),
        ("{version: 1, providers: {x: {}}}", "provider x: base_url is missing"),
        ("{version: 1, providers: {x: {base_url: 'ftp://a'}}}", "base_url must be http"),
        ("{version: 1, providers: {x: {base_url: 'http://user:pw@a/v1'}}}", "base_url must be http"),
        ("{version: 1, providers: {x: {base_url: 'http://localhost:1/v1'}}}", "loopback"),
        ("{version: 1, providers: {x: {preset: nobody}}}", "no preset 'nobody'"),
        ("{version: 1, providers: {x: {base_url: 'http://a', wire: soap}}}", "wire must be one of"),
        ("{version: 1, providers: {x: {base_url: 'http://a', key: sk-1}}}", "unknown: key"),
        ("{version: 1, providers: {x: {base_url: 'http://a', models: [{name: m, price: 3}]}}}", "the price of m"),
        (
            "{version: 1, providers: {openai: {models: [a]}}, aliases: {auto/review: rehearsal/rehearsal}}",
            "never mixed",
        ),
        ("{version: 1, providers: {openai: {models: [a]}}, aliases: {auto/review: openai/b}}", "no model 'openai/b'"),
        ("{version: 1, aliases: {rehearsal: openai/a}}", "alias rehearsal"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(home, text, message):
    write(home, text)
    with pytest.raises(ConfigError, match=message):
        load_config(SHIPPED, home)


def test_a_refused_change_leaves_the_file_as_it_was(home):
    add_provider(home, SHIPPED, "openai", models=["a"])
    data = yaml.safe_load(home_file(home).read_text())
    data["aliases"] = {"auto/review": "openai/a"}
    write(home, yaml.safe_dump(data))
    with pytest.raises(ConfigError, match="no model 'openai/a'"):
        add_provider(home, SHIPPED, "openai", models=["b"])
    assert load_config(SHIPPED, home).alias("auto/review").targets == ("openai/a",)
    with pytest.raises(ConfigError, match="There is no provider"):
        remove_provider(home, SHIPPED, "nobody")
    assert stat.S_IMODE(home_file(home).stat().st_mode) == 0o600


def test_a_provider_can_be_taken_out_again(home):
    add_provider(home, SHIPPED, "openai", models=["a"])
    remove_provider(home, SHIPPED, "openai")
    assert load_config(SHIPPED, home).alias("auto/review").rehearsed


def test_a_key_comes_from_the_environment_or_a_file_and_is_never_written(home, tmp_path):
    named = add_provider(home, SHIPPED, "openai", models=["a"], key_env="MY_KEY")
    assert named.key({"MY_KEY": "sk-env"}) == "sk-env"
    assert named.key({}) is None
    (tmp_path / "key").write_text("sk-file\n")
    filed = add_provider(home, SHIPPED, "anthropic", models=["a"], key_file=str(tmp_path / "key"))
    assert filed.key({}) == "sk-file"
    assert filed.key_env is None
    assert "sk-" not in home_file(home).read_text()
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match="key file of provider anthropic"):
        filed.key({})


@pytest.mark.parametrize("text", ["3", "a/b", "3/", "-1/2", "1/inf", "1/2/3"])
def test_a_price_of_another_form_is_refused(text):
    with pytest.raises(UsageError):
        parse_price(text)


def test_a_provider_without_models_or_address_is_refused(home):
    with pytest.raises(ConfigError, match="Which models"):
        add_provider(home, SHIPPED, "openai", models=[])
    with pytest.raises(ConfigError, match="not a preset"):
        add_provider(home, SHIPPED, "mine", models=["a"])


def test_a_foreign_omniroute_without_its_password_tells_what_does_not_hold(home, tmp_path):
    known = use_gateway(home, SHIPPED, "http://10.0.0.5:20128/", admin_password_file=str(tmp_path / "pw"))
    assert not any("same key" in warning for warning in known)
    assert load_config(SHIPPED, home).url == "http://10.0.0.5:20128"
    warnings = use_gateway(home, SHIPPED, "http://10.0.0.5:20128", shared_key_file=str(tmp_path / "key"))
    assert any("same key" in warning for warning in warnings)
    assert load_config(SHIPPED, home).admin_password_file is None
    use_gateway(home, SHIPPED, None)
    assert load_config(SHIPPED, home).url is None
    for url in ("10.0.0.5", "http://a/path"):
        with pytest.raises(UsageError):
            use_gateway(home, SHIPPED, url, shared_key_file="k")
    with pytest.raises(UsageError, match="Neither"):
        use_gateway(home, SHIPPED, "http://a:1")
