"""A batch's records a few at a time are the same records, or refused alike."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from kserver.wire.batch import LOG_APPEND_TIME, RecordBatch, encode_batch, encode_records
from kserver.wire.compression import Compression
from tests.unit.wire.test_batch import NOW, changed, edits, records, sealed


def by_parts(batch, most):
    parts = list(batch.records_by_parts(batch.unfolded(), most))
    assert all(0 < len(part) <= most for part in parts)
    return [record for part in parts for record in part]


@given(
    new=records.filter(bool),
    edits=edits,
    most=st.integers(1, 9),
    more=st.sampled_from([0, 0, 0, 1, -1, 1 << 30]),
    last=st.sampled_from([0, 0, 1, -1]),
    append_time=st.booleans(),
)
@settings(max_examples=300)
def test_parts_hold_what_the_whole_holds(new, edits, most, more, last, append_time):
    batch = RecordBatch(
        sealed(
            changed(encode_records(new), edits),
            base_offset=7,
            base_timestamp=NOW,
            max_timestamp=NOW,
            attributes=LOG_APPEND_TIME if append_time else 0,
            count=len(new) + more,
            last_offset_delta=len(new) - 1 + last,
        )
    )
    try:
        expected = batch.records()
    except ProtocolError:
        with pytest.raises(ProtocolError):
            by_parts(batch, most)
    else:
        assert by_parts(batch, most) == expected


def test_large_records_are_parted_by_their_bytes():
    new = [(NOW, None, bytes(400_000), ())] * 10
    batch = RecordBatch(encode_batch(new, compression=Compression.zstd))
    parts = list(batch.records_by_parts(batch.unfolded()))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert [record for part in parts for record in part] == batch.records()


def test_very_many_records_take_little_memory():
    batch = RecordBatch(encode_batch([(NOW, None, None, ())] * 200_000))
    unfolded = batch.unfolded()
    tracemalloc.start()
    try:
        assert sum(len(part) for part in batch.records_by_parts(unfolded)) == 200_000
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
