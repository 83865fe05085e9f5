"""How image builds get through a corporate network, and what must not get into an image."""

from __future__ import annotations

import pytest

from orchestrator.errors import ConfigError
from orchestrator.sandbox import build_settings
from orchestrator.sandbox.build_settings import build_route
from orchestrator.settings import load_settings

NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "NPM_CONFIG_REGISTRY")


@pytest.fixture(autouse=True)
def bare_host(monkeypatch, tmp_path):
    monkeypatch.setenv("SCHOOL_HOME", str(tmp_path))
    monkeypatch.setattr(build_settings, "_PIP_CONFIGS", (str(tmp_path / "pip.conf"),))
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def route(say=lambda line: None, **values):
    return build_route(load_settings(**values), say)


def test_the_proxy_setting_reaches_builds_in_both_spellings():
    args = route(build_proxy="http://proxy.example:3128").args
    assert args["HTTP_PROXY"] == args["https_proxy"] == "http://proxy.example:3128"


def test_the_environments_proxy_is_the_default(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://env.example:1")
    monkeypatch.setenv("NO_PROXY", "localhost")
    args = route().args
    assert (args["HTTPS_PROXY"], args["no_proxy"]) == ("http://env.example:1", "localhost")


@pytest.mark.parametrize(
    ("proxy", "network"),
    [("http://127.0.0.1:3128", "host"), ("localhost:3128", "host"), ("http://proxy.example:3128", "default")],
)
def test_a_proxy_on_the_hosts_loopback_is_reached_over_the_hosts_network(proxy, network):
    assert route(build_proxy=proxy).network == network


def test_an_index_of_pip_conf_is_passed_on_and_files_of_the_host_are_not(tmp_path):
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://index.example/simple\nextra-index-url = file:///opt/a file:///opt/b\n"
    )
    args = route().args
    assert args["PIP_INDEX_URL"] == "https://index.example/simple"
    assert "PIP_EXTRA_INDEX_URL" not in args


@pytest.mark.parametrize("login", ["me:hunter2", "hunter2"])
def test_an_index_with_a_password_stays_out_of_image_builds_and_is_named(monkeypatch, login):
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{login}@index.example/simple")
    said: list[str] = []
    assert "PIP_INDEX_URL" not in route(said.append).args
    assert "PIP_INDEX_URL" in said[0]
    assert "hunter2" not in said[0]


def test_the_ca_setting_must_be_readable_and_hold_a_certificate(tmp_path):
    with pytest.raises(ConfigError, match="can't be read"):
        route(build_ca=tmp_path / "none.pem")
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="no certificate"):
        route(build_ca=tmp_path / "empty.pem")


@pytest.mark.parametrize("separator", [",", "|"])
def test_a_password_in_the_middle_of_a_list_of_proxies_is_seen(monkeypatch, separator):
    monkeypatch.setenv(
        "GOPROXY", separator.join(["https://goproxy.example", "https://user:token@own.example", "direct"])
    )
    assert "GOPROXY" not in route().args
