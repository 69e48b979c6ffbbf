"""Records to and from their bytes; what is refused is in tests/contract/test_record_decoders.py."""

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kserver.errors import KafkaError, ProtocolError
from kserver.wire.batch import (
    RecordBatch,
    batches,
    encode_batch,
    encode_records,
)
from kserver.wire.compression import Compression
from tests.support.record_model import (
    NOW,
    changed,
    edits,
    records,
    sealed,
    slow_encode,
)


@given(records)
@example([(NOW, None, bytes(1 << 21), ())])
@example([(0, b"", b"", ()), (-(1 << 62), None, None, ()), (1 << 62, b"k", b"v", ())])
def test_records_are_written_as_the_format_says(new):
    assert encode_records(new) == slow_encode(new)


@pytest.mark.parametrize("codec", Compression)
@given(st.data())
@settings(max_examples=60)
def test_a_batch_with_changed_bytes_is_read_or_refused_and_nothing_else(codec, data):
    new = data.draw(records.filter(bool))
    batch = changed(encode_batch(new, compression=codec), data.draw(edits))
    try:
        for part in batches(batch):
            part.is_valid_crc()
            part.records(limit_bytes=1 << 20)
    except (ProtocolError, KafkaError):
        pass


def test_a_lying_count_reserves_no_memory():
    many_records = sealed(bytes(100), count=0x7FFFFFFF, last_offset_delta=0x7FFFFFFF)
    many_headers = sealed(bytes.fromhex("14000000 0101 feffffff0f"), count=1)
    tracemalloc.start()
    for lie in (many_records, many_headers):
        with pytest.raises(ProtocolError):
            RecordBatch(lie).records()
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


# Many that are alike


alike = st.tuples(
    st.sampled_from([NOW, NOW, NOW, NOW + 1]),
    st.sampled_from([None, None, b"", b"key", b"kee", b"k" * 64]),
    st.sampled_from([None, b"", b"one", b"two", b"v" * 64]),
    st.sampled_from([(), (), (("a", b"1"),), [("a", b"1")], (("a", b"2"), ("b", None))]),
)


@given(st.lists(st.tuples(alike, st.integers(1, 70)), min_size=1, max_size=4))
@settings(max_examples=50)
def test_what_is_like_the_record_before_is_written_and_read_as_any_other(runs):
    new = [record for record, times in runs for _ in range(times)]
    body = encode_records(new)
    assert body == slow_encode(new)
    batch = RecordBatch(encode_batch(new))
    assert [(t, k, v, list(h)) for _, t, k, v, h in batch.records()] == [
        (t, k, v, list(h)) for t, k, v, h in new
    ]


def test_a_name_and_a_size_that_repeat_are_written_right_where_offsets_grow_wider():
    new = [(NOW, None, b"same", ())] * 8300
    assert encode_records(new) == slow_encode(new)


# Some at a time


def test_large_records_are_parted_by_their_bytes():
    new = [(NOW, None, bytes(400_000), ())] * 10
    batch = RecordBatch(encode_batch(new, compression=Compression.zstd))
    parts = list(batch.records_by_parts(batch.unfolded()))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert [record for part in parts for record in part] == batch.records()


def test_very_many_records_take_little_memory():
    batch = RecordBatch(encode_batch([(NOW, None, None, ())] * 60_000))
    unfolded = batch.unfolded()
    tracemalloc.start()
    try:
        assert sum(len(part) for part in batch.records_by_parts(unfolded)) == 60_000
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
