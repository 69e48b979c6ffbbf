"""`_walk.c` and the walk in Python: what the one finds in order has no fault for the other."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from kserver.wire import walk
from kserver.wire.batch import batches, encode_batch
from kserver.wire.records import RecordReader, encode_records
from tests.support.extensions import build, exactly
from tests.support.record_bytes import fetches, lying_records, records

LARGEST = (1 << 63) - 1
ALL_TIMES = (-LARGEST, LARGEST)
KEYED = ((5, b"k", b"v", ()), (9, b"", None, (("h", None),)), (7, b"k", b"", ()))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> ModuleType:
    return build("kserver.wire._walk", tmp_path_factory.mktemp("built"))


def read(body, count, base, earliest, latest, keyed):
    """As `largest_timestamp`, in Python; "refused" where that may give None alone."""
    try:
        rows = RecordReader(bytes(body), count, 0, count - 1, base, None).take(count, LARGEST)
    except ProtocolError:
        return "refused"
    times = [row[1] for row in rows]
    if keyed and any(row[2] is None for row in rows):
        return "refused"
    if not all(time == -1 or earliest <= time <= latest for time in times):
        return "refused"
    return max([-1, *times])


def test_it_was_built_where_there_is_a_compiler():
    """Whoever runs the tests has one, and installs k with it."""
    assert walk.IS_BUILT


@given(fetches(), st.booleans())
def test_what_producers_send_is_in_order(compiled, data, keyed):
    for batch in batches(data):
        asked = (exactly(batch.unfolded()), batch.count, batch.base_timestamp, *ALL_TIMES, keyed)
        found, expected = compiled.largest_timestamp(*asked), read(*asked)
        assert found == (None if expected == "refused" else expected)


@given(st.integers(0, 1 << 32))
def test_nothing_that_lies_is_in_order(compiled, seed):
    random = Random(seed)
    in_order = 0
    for _ in range(50):
        body, count = lying_records(random)
        count += random.choice((0, 0, 0, 0, 0, 0, -1, 1))
        base = random.choice((0, 5, LARGEST - 100, -LARGEST))
        asked = (exactly(body), count, base, *ALL_TIMES, random.random() < 0.2)
        found = compiled.largest_timestamp(*asked)
        if found is not None and body:
            assert found == read(*asked), (asked, body)
            in_order += 1
    assert in_order < 50


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_nothing_that_was_spoilt_is_in_order(compiled, some, choose):
    (batch,) = batches(encode_batch(some))
    body = bytearray(batch.unfolded())
    for _ in range(choose.draw(st.integers(1, 2))):
        at = choose.draw(st.integers(0, len(body) - 1))
        body[at] = choose.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    asked = (exactly(body), batch.count, batch.base_timestamp, *ALL_TIMES, False)
    found = compiled.largest_timestamp(*asked)
    assert found is None or found == read(*asked)


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


@pytest.mark.parametrize("count", [0, 2, 4, 1 << 31])
def test_another_count_is_not_in_order(compiled, count):
    assert compiled.largest_timestamp(encode_records(KEYED), count, 5, *ALL_TIMES, True) is None


def test_a_record_cut_anywhere_is_not_in_order(compiled):
    whole = encode_records(KEYED)
    for size in range(len(whole)):
        cut = exactly(whole[:size])
        assert compiled.largest_timestamp(cut, 3, 5, *ALL_TIMES, False) is None
