"""`k configs`: which words go together."""

from types import SimpleNamespace

import pytest

from kcli.commands import configs
from kcli.commands.configs import Entity
from kcli.main import main


def entities(line):
    """What the words name, before it is looked at whether they go with the others."""
    import click

    context = click.Context(configs.configs)
    configs.configs.parse_args(context, line.split())
    return configs._entities(SimpleNamespace(**context.params))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--topic t", [("topics", "t")]),
        ("--entity-type topics --entity-name t", [("topics", "t")]),
        ("--entity-type topics", [("topics", None)]),
        ("--broker-defaults", [("brokers", "")]),
        ("--entity-type brokers --entity-default", [("brokers", "")]),
        ("--user u --client c", [("clients", "c"), ("users", "u")]),
        ("--user-defaults --client c", [("clients", "c"), ("users", "")]),
        (
            "--entity-type users --entity-default --entity-type clients --entity-name c",
            [("users", ""), ("clients", "c")],
        ),
        (
            "--entity-name u --entity-type users --entity-type clients --entity-default",
            [("users", "u"), ("clients", "")],
        ),
        ("--entity-type users --entity-type clients", [("users", None), ("clients", None)]),
        (
            "--entity-type users --entity-name u --entity-type clients",
            [("users", "u"), ("clients", None)],
        ),
    ],
)
def test_types_and_names_go_together_in_their_order(line, found):
    assert entities(line) == [Entity(*one) for one in found]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--describe", "At least one entity type must be specified"),
        ("--topic t", "Command must include exactly one action: --describe, --alter"),
        ("--describe --alter --topic t", "Command must include exactly one action"),
        ("--describe --entity-type x", "Invalid entity type x, the entity type must be one of"),
        ("--describe --topic t --entity-type topics", "Duplicate entity type(s) specified: topics"),
        (
            "--describe --topic t --entity-name t",
            "--entity-{type,name,default} should not be used in conjunction with specific entity",
        ),
        ("--describe --topic t --broker 0", "Only 'users' and 'clients' entity types may be"),
        ("--describe --broker x", "The entity name for brokers must be a valid integer broker id"),
        ("--describe --broker-logger x", "The entity name for broker-loggers must be a valid"),
        ("--describe --ip no/host", "The entity name for ips must be a valid IP or resolvable"),
        ("--describe --entity-type broker-loggers", "An entity name must be specified with --des"),
        ("--describe --entity-type topics --entity-default", "--entity-default must not be spec"),
        ("--describe --entity-type users --entity-name a --entity-name b", "More entity names"),
        ("--describe --topic t --add-config a=b", 'Option "[describe]" can\'t be used with option'),
        ("--describe --topic t --dry-run", 'Option "[describe]" can\'t be used with option'),
        ("--describe --topic t --zookeeper h:1", "--zookeeper is not supported; use"),
        ("--alter --topic t", "At least one of --add-config, --add-config-file, or --delete-con"),
        ("--alter --topic t --all", 'Option "[alter]" can\'t be used with option "[all]"'),
        ("--alter --topic t -o json", 'Option "[alter]" can\'t be used with option "[output]"'),
        ("--alter --entity-type topics --add-config a=b", "An entity name must be specified with"),
        ("--alter --entity-type users --add-config a=b", "An entity-name or default entity must"),
        (
            "--alter --entity-type users --entity-name u --entity-type clients --add-config a=b",
            "An entity name must be specified for every entity type",
        ),
        ("--alter --topic t --add-config a=b --add-config-file f", "Only one of --add-config or"),
    ],
)
def test_words_that_make_no_sense_are_refused_before_a_broker_is_asked(words, why, capsys):
    assert main(["configs", "--bootstrap-server", "127.0.0.1:1", *words.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"k configs: {why}")


def test_a_file_that_is_not_there_is_named(capsys):
    words = "--alter --topic t --add-config-file /no/such"
    assert main(["configs", "--bootstrap-server", "127.0.0.1:1", *words.split()]) == 1
    assert "k configs: /no/such: No such file or directory" in capsys.readouterr().err
