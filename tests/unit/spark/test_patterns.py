"""Patterns of topics mean what they do to Java."""

from __future__ import annotations

import time

import pytest

from kcli.spark.patterns import check, matching
from kserver.errors import ConfigError

NAMES = ["orders", "orders-eu", "orders.eu", "Orders7", "oorders", "x[y]", "a-b"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-eu", "orders.eu"]),
        (r"orders\.\w+", ["orders.eu"]),
        (r"\Qorders.\Eeu", ["orders.eu"]),
        ("(?i)orders[0-9]?", ["orders", "Orders7"]),
        (r"\p{Upper}\p{Alpha}+\p{Digit}", ["Orders7"]),
        (r"[\p{Lower}-]+", ["orders", "orders-eu", "oorders", "a-b"]),
        ("[a-z&&[^x]]+", ["orders", "oorders"]),
        ("^orders$", ["orders"]),
        (r"\P{Punct}+", ["orders", "Orders7", "oorders"]),
        (r"\p{Lu}.*", ["Orders7"]),
        ("orders(?!-).*", ["orders", "orders.eu"]),
        (r"(.)\1rders", ["oorders"]),
        ("o++rders", ["orders", "oorders"]),
        (r"x\[y\]|x[\]]", ["x[y]"]),
        ("[]x]\\[y[]]", ["x[y]"]),
        ("a&&b|a-b", ["a-b"]),
    ],
)
def test_a_pattern_is_for_the_whole_name_and_in_javas_dialect(pattern, found):
    check(pattern)
    assert matching(pattern, NAMES) == found


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(", "is an invalid regex: a group"),
        ("a{2,1}", r"is an invalid regex: \{2,1\} is out of range"),
        (r"\p{Nonsense}", r"has \\p{Nonsense}, which is not supported"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern, told):
    with pytest.raises(ConfigError, match=told):
        check(pattern)


def test_a_pattern_takes_time_by_the_length_of_the_name():
    start = time.process_time()
    assert matching("^(a+)+b$", ["a" * 249]) == []
    assert time.process_time() - start < 5
