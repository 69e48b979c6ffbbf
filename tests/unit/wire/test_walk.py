"""`_walk.c`: times and keys; what else is in order is in tests/contract/test_record_decoders.py."""

from __future__ import annotations

from types import ModuleType

import pytest

from kserver.wire import walk
from kserver.wire.records import encode_records
from tests.support.extensions import build

KEYED = ((5, b"k", b"v", ()), (9, b"", None, (("h", None),)), (7, b"k", b"", ()))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> ModuleType:
    return build("kserver.wire._walk", tmp_path_factory.mktemp("built"))


def test_it_was_built_where_there_is_a_compiler():
    """Whoever runs the tests has one, and installs k with it."""
    assert walk.IS_BUILT


@pytest.mark.parametrize(
    ("bounds", "found"),
    [((5, 9), 9), ((6, 9), None), ((5, 8), None), ((0, 100), 9)],
)
def test_timestamps_are_held_to_their_bounds(compiled, bounds, found):
    body = encode_records(KEYED)
    assert compiled.largest_timestamp(body, 3, 5, *bounds, True) == found


def test_no_timestamp_is_within_any_bounds(compiled):
    body = encode_records(((-1, None, b"", ()),))
    assert compiled.largest_timestamp(body, 1, -1, 5, 9, False) == -1
    assert compiled.largest_timestamp(body, 1, -1, 5, 9, True) is None
