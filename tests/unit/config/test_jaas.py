"""Entries of a JAAS configuration."""

import pytest

from kserver.config.jaas import parse_jaas

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{DIGEST} required username="k" password="s";', {"username": "k", "password": "s"}),
        (
            f" {DIGEST}\nRequired\n  username = k\n  password=s\n;\n",
            {"username": "k", "password": "s"},
        ),
        (rf'{DIGEST} required password="a \"b\" \\ ; c";', {"password": r'a "b" \ ; c'}),
        (f"{DIGEST} required;", {}),
    ],
)
def test_options_are_read_as_java_reads_them(text, options):
    assert parse_jaas(text) == ("DigestLoginModule", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k:secret",
        f'{DIGEST} required username="k" password="secret"',
        f'{DIGEST} username="k" password="secret";',
        f'{DIGEST} required username="k" password="secret;',
        f'{DIGEST} required username="k" password="secret"; more',
    ],
)
def test_what_is_none_is_refused_without_repeating_it(text):
    with pytest.raises(ValueError, match="not of the form") as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)
