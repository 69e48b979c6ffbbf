"""What shared options mean: where the brokers are, which names match, what a file says."""

from types import SimpleNamespace

import pytest

from kcli.command import options
from kcli.command.options import Refused


def given(bootstrap_server=None, command_config=None):
    return SimpleNamespace(bootstrap_server=bootstrap_server, command_config=command_config)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:1\nclient.id=me\n")
    return str(path)


def test_the_option_wins_over_the_file_over_the_variable_over_the_default(monkeypatch, file):
    def server(**words):
        return options.client_properties(given(**words))["bootstrap.servers"]

    monkeypatch.delenv("K_BOOTSTRAP_SERVER", raising=False)
    assert server() == "127.0.0.1:9092"
    monkeypatch.setenv("K_BOOTSTRAP_SERVER", "variable:1")
    assert server() == "variable:1"
    assert server(command_config=file) == "file:1"
    assert server(bootstrap_server="option:1", command_config=file) == "option:1"


def test_a_command_s_own_defaults_yield_to_the_file(file):
    assert options.client_properties(given(), client_id="tool")["client.id"] == "tool"
    assert options.client_properties(given(command_config=file), client_id="tool")["client.id"] == (
        "me"
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = str(tmp_path / "missing")
    with pytest.raises(Refused, match="No such file"):
        options.read_properties(path)


def test_pairs_split_at_the_first_equals_sign():
    assert options.key_values(["a=b=c", "d", "e="]) == {"a": "b=c", "d": "", "e": ""}


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("foo", "foo", True),
        ("foo", "foobar", False),
        ("fo.*", "foobar", True),
        ("foo,bar", "bar", True),
        (" 'foo , bar' ", "foo", True),
        ('"foo"', "foo", True),
        (r"a\.b", "axb", False),
        (r"\Qtest.a\E", "test.a", True),
        (r"\Qtest.a\E", "test_a", False),
    ],
)
def test_patterns_match_whole_names(pattern, name, matches):
    assert options.name_filter(pattern)(name) is matches


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(Refused, match=r"\[ is an invalid regex: a class \["):
        options.name_filter("[")
