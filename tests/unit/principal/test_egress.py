"""A repository asks, the user's settings allow: only what both name is granted."""

import pytest

from orchestrator.errors import ConfigError
from orchestrator.principal.egress import allowed_egress
from orchestrator.sandbox.repo_config import parse_config
from orchestrator.settings import Settings


def settings(allow):
    return Settings(egress_allow=allow)


def test_only_what_both_name_is_granted_and_the_rest_is_said():
    granted, notes = allowed_egress(
        ["a.example:443", "b.example:443", "a.example:80"], settings("a.example:443, c.example:443")
    )
    assert granted == ("a.example:443",)
    assert "what it can read, it can send there" in notes[0]
    assert "b.example:443, a.example:80" in notes[1]


@pytest.mark.parametrize(
    ("asked", "allow"), [([], "a.example:443"), (["a.example:443"], ""), (["a.example:443"], "example:443")]
)
def test_nothing_is_granted_by_one_side_alone(asked, allow):
    assert allowed_egress(asked, settings(allow) if "." in allow or not allow else settings(""))[0] == ()


@pytest.mark.parametrize("allow", ["*", "example.org", "*.example.org:443", "10.0.0.1:80", "https://a.example:443"])
def test_a_list_of_the_users_that_is_none_is_refused(allow):
    with pytest.raises(ConfigError, match="name:port"):
        allowed_egress([], settings(allow))


@pytest.mark.parametrize("place", ["*", "example.org", "169.254.169.254:80", "localhost:80", "Example.org:443"])
def test_a_repository_can_only_ask_for_names_with_ports(place):
    with pytest.raises(ConfigError, match="name:port"):
        parse_config(f'[egress]\nallow = ["{place}"]\n')


def test_a_repository_that_asks_is_read():
    assert parse_config('[egress]\nallow = ["a.example:443"]\n').egress == ("a.example:443",)
    assert parse_config("").egress == ()
