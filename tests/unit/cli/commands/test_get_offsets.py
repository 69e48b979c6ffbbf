"""`k get-offsets`: which partitions are meant, and which offset."""

from types import SimpleNamespace

import pytest

from kcli.command.options import Refused
from kcli.commands import get_offsets
from kcli.main import main


def chosen(**given):
    options = {"topic": None, "partitions": None, "topic_partitions": None} | given
    rules = get_offsets._rules(SimpleNamespace(**options))
    return [
        (topic, number)
        for topic in ("bar", "foo", "foo2")
        for number in range(4)
        if any(rule.topic(topic) and number in rule.numbers for rule in rules)
    ]


def test_without_a_rule_all_partitions_are_meant():
    assert len(chosen()) == 12


def test_topic_is_a_pattern_and_partitions_are_numbers():
    assert chosen(topic="fo.*", partitions="1,3") == [
        ("foo", 1),
        ("foo", 3),
        ("foo2", 1),
        ("foo2", 3),
    ]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("foo:1", [("foo", 1)]),
        ("foo:1-3", [("foo", 1), ("foo", 2)]),
        ("foo:2-", [("foo", 2), ("foo", 3)]),
        ("foo:-2", [("foo", 0), ("foo", 1)]),
        (":3", [("bar", 3), ("foo", 3), ("foo2", 3)]),
        ("foo:3,ba.:0", [("bar", 0), ("foo", 3)]),
        ("foo:-", [("foo", n) for n in range(4)]),
        ("foo:", [("foo", n) for n in range(4)]),
    ],
)
def test_a_rule_is_a_pattern_and_a_range(rules, expected):
    assert chosen(topic_partitions=rules) == expected


@pytest.mark.parametrize(
    ("text", "spec"),
    [("latest", -1), ("-2", -2), ("earliest-pending-upload", -6), ("1700000000000", 1700000000000)],
)
def test_a_time_is_a_word_or_a_number(text, spec):
    assert get_offsets._spec(text) == spec


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--time", "foo"], "Malformed time argument foo. Please use -1 or latest / -2"),
        (["--time", "9223372036854775808"], "Malformed time argument 9223372036854775808"),
        (
            ["--partitions", "1,x"],
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            "1,x",
        ),
        (["--topic-partitions", "a:b:c"], "Invalid rule specification: a:b:c"),
        (["--topic-partitions", "a", "--topic", "b"], "--topic-partitions cannot be used with"),
        (["--topic", "["], "[ is an invalid regex: a class ["),
    ],
)
def test_what_makes_no_sense_is_refused_in_kafkas_words(words, why, capsys):
    assert main(["get-offsets", *words]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"Error occurred: {why}")


def test_an_unreadable_rule_is_refused():
    with pytest.raises(Refused):
        chosen(topic_partitions="foo:x")
