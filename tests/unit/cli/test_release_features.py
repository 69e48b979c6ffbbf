"""Which release has which features, as Kafka 4.3.1's own tables have it."""

import pytest

from kcli.release_features import (
    LATEST,
    METADATA_VERSION,
    RELEASES,
    SINCE,
    first_level,
    metadata_level,
    shown,
)


@pytest.mark.parametrize(
    ("release", "level"),
    [
        (LATEST, 30),
        ("4.0-IV0", 22),
        ("4.0", 25),
        ("4.0.1", 25),
        ("3.9.2", 21),
        ("4.4-IV0", 31),
        ("4.4", None),
        ("4", None),
        ("", None),
        ("4.0-IV", None),
        ("bogus", None),
    ],
)
def test_a_release_is_named_whole_or_in_short_unless_it_is_not_out(release, level):
    assert metadata_level(release) == level


def test_levels_rise_with_the_releases():
    assert list(RELEASES.values()) == list(range(7, 32))
    for name in SINCE:
        levels = [first_level(name, level) for level in RELEASES.values()]
        assert levels == sorted(levels)
        assert (levels[0], levels[-1]) == (0, len(SINCE[name]) - 1)


def test_transactions_begin_with_the_newer_protocol_in_4_0():
    assert [first_level("transaction.version", level) for level in (21, 23, 24)] == [0, 0, 2]


def test_levels_of_metadata_version_are_shown_by_name():
    assert shown(METADATA_VERSION, 25) == "4.0-IV3"
    assert shown(METADATA_VERSION, 99) == "UNKNOWN 99"
    assert shown("group.version", 1) == "1"
