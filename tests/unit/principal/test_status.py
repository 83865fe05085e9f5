"""Settings are shown without what is secret in them."""

import pytest

from orchestrator.principal.status import _shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:secret@proxy:3128", "http://user:***@proxy:3128"),
        ("smtps://:secret@host:465", "smtps://:***@host:465"),
        ("http://user:se:cr:et@proxy", "http://user:***@proxy"),
        ("http://proxy:3128/path@x", "http://proxy:3128/path@x"),
        ("imaps://user@host/INBOX", "imaps://user@host/INBOX"),
        (8, 8),
        (None, None),
    ],
)
def test_a_password_in_a_url_is_not_shown(value, shown):
    assert _shown(value) == shown
