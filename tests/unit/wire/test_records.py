"""Records to and from their bytes."""

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kserver.errors import KafkaError, ProtocolError
from kserver.wire.batch import (
    LOG_APPEND_TIME,
    Record,
    RecordBatch,
    batches,
    encode_batch,
    encode_records,
)
from kserver.wire.compression import Compression
from tests.support.record_model import (
    NOW,
    Refused,
    changed,
    edits,
    records,
    sealed,
    slow_decode,
    slow_encode,
    slow_varint,
)


@given(records)
@example([(NOW, None, bytes(1 << 21), ())])
@example([(0, b"", b"", ()), (-(1 << 62), None, None, ()), (1 << 62, b"k", b"v", ())])
def test_records_are_written_as_the_format_says(new):
    assert encode_records(new) == slow_encode(new)


@given(
    new=records,
    gaps=st.lists(st.integers(1, 20_000), min_size=8, max_size=8),
    padding=st.integers(0, 5),
    attributes=st.integers(0, 255),
    base_offset=st.integers(0, 1 << 60),
)
def test_every_legal_record_is_read(new, gaps, padding, attributes, base_offset):
    deltas = [sum(gaps[:n]) for n in range(len(new))]
    body = slow_encode(new, deltas, padding, attributes)
    last = max(deltas, default=0)
    first = new[0][0] if new else 0
    batch = RecordBatch(
        sealed(
            body,
            base_offset=base_offset,
            base_timestamp=first,
            count=len(new),
            last_offset_delta=last,
        )
    )
    expected = [Record(base_offset + d, *record) for d, record in zip(deltas, new, strict=True)]
    assert batch.records() == expected == slow_decode(body, base_offset, first, len(new), last)
    assert batch.is_valid_crc()


def test_offsets_and_lengths_of_every_width_are_read():
    sizes = [0, 63, 64, 8191, 8192, 1 << 20]
    new = [(NOW + n, None, bytes(sizes[n % 6] if n < 6 else 1), ()) for n in range(8300)]
    read = RecordBatch(encode_batch(new, base_offset=5)).records()
    assert [record.offset for record in read] == list(range(5, 8305))
    assert [record[1:] for record in read] == new


@given(
    new=records,
    edits=edits,
    more=st.sampled_from([0, 0, 0, 1, -1, 1 << 30]),
    last=st.sampled_from([0, 0, 1, -1]),
    base_timestamp=st.sampled_from([NOW, (1 << 63) - 1, -(1 << 63)]),
    append_time=st.none() | st.just(NOW),
)
@settings(max_examples=400)
def test_changed_bytes_are_read_alike_or_refused_alike(
    new, edits, more, last, base_timestamp, append_time
):
    body = changed(encode_records(new), edits)
    count, last = len(new) + more, len(new) - 1 + last
    try:
        expected = slow_decode(body, 7, base_timestamp, count, last, append_time)
    except Refused:
        expected = None
    batch = RecordBatch(
        sealed(
            body,
            base_offset=7,
            base_timestamp=base_timestamp,
            max_timestamp=NOW,
            attributes=0 if append_time is None else LOG_APPEND_TIME,
            count=count,
            last_offset_delta=last,
        )
    )
    if expected is None or count < 0 or last < count - 1:
        with pytest.raises(ProtocolError):
            batch.records()
    else:
        assert batch.records() == expected


@given(st.binary(max_size=60), st.integers(-1, 9))
@settings(max_examples=300)
def test_noise_is_read_alike_or_refused_alike(body, count):
    try:
        expected = slow_decode(body, 0, 0, count, 1 << 31)
    except Refused:
        expected = None
    batch = RecordBatch(sealed(body, count=count, last_offset_delta=(1 << 31) - 1))
    if expected is None or count < 0:
        with pytest.raises(ProtocolError):
            batch.records()
    else:
        assert batch.records() == expected


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


def record_of(fields):
    """One record whose own length is right: attributes and deltas of 0, then `fields` in hex."""
    body = bytes(3) + bytes.fromhex(fields)
    return slow_varint(len(body)) + body


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param("01 feffffff0f 00", "cut short", id="a value of 2 GB"),
        pytest.param("01 feffffff7f 00", "32 bits", id="a length of 35 bits"),
        pytest.param("01 8080808080808080808000 00", "64 bits", id="a length of eleven bytes"),
        pytest.param("01 01 03", "impossible count", id="-2 headers"),
        pytest.param("01 01 feffffff0f", "impossible count", id="2^31 headers"),
        pytest.param("03 01 00", "cut short", id="a key of -2 bytes"),
        pytest.param("01 ffff7f 00", "negative", id="a value of -1048576 bytes"),
        pytest.param("8100 01 00", "cut short", id="a null in two bytes"),
        pytest.param("01 01 02 01 01", "cut short", id="a header without a name"),
        pytest.param("01 01 00 00", "not that of its fields", id="a byte too many"),
        pytest.param("01 01", "1 records in 6 bytes", id="a byte too few"),
    ],
)
def test_lying_lengths_are_refused(fields, why):
    with pytest.raises(ProtocolError, match=why):
        RecordBatch(sealed(record_of(fields), count=1)).records()


@pytest.mark.parametrize(
    ("length", "why"),
    [
        pytest.param(b"\x0b", "not that of its fields", id="-6"),
        pytest.param(b"\x0a", "not that of its fields", id="one less"),
        pytest.param(b"\x0e", "not that of its fields", id="one more"),
        pytest.param(b"\xff\xff\xff\xff\x0f", "negative", id="-2^31"),
    ],
)
def test_a_lying_record_length_is_refused(length, why):
    good = record_of("01 01 00")
    assert good[:1] == b"\x0c"
    with pytest.raises(ProtocolError, match=why):
        RecordBatch(sealed(length + good[1:], count=1)).records()


def test_bytes_after_the_last_record_are_refused():
    body = record_of("01 01 00")
    assert RecordBatch(sealed(body, count=1)).records()
    with pytest.raises(ProtocolError, match="does not end where the batch does"):
        RecordBatch(sealed(body + body, count=1, last_offset_delta=1)).records()


@pytest.mark.parametrize("deltas", [[0, 0], [1, 0], [4, 2], [-1, 0], [0, -3], [0, 6]])
def test_offsets_ascend_and_stay_within_the_batch(deltas):
    new = [(NOW, None, None, ())] * 2
    body = slow_encode(new, deltas)
    with pytest.raises(ProtocolError, match=r"do not ascend|last offset"):
        RecordBatch(sealed(body, count=2, last_offset_delta=5)).records()


def test_a_lying_count_reserves_no_memory():
    many_records = sealed(bytes(100), count=0x7FFFFFFF, last_offset_delta=0x7FFFFFFF)
    many_headers = sealed(record_of("01 01 feffffff0f"), count=1)
    tracemalloc.start()
    for lie in (many_records, many_headers):
        with pytest.raises(ProtocolError):
            RecordBatch(lie).records()
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_timestamp_that_leaves_64_bits_is_refused():
    body = encode_records([(0, None, None, ()), (1, None, None, ())])
    fields = {"count": 2, "last_offset_delta": 1}
    assert RecordBatch(sealed(body, base_timestamp=(1 << 63) - 2, **fields)).records()
    with pytest.raises(ProtocolError):
        RecordBatch(sealed(body, base_timestamp=(1 << 63) - 1, **fields)).records()


def test_an_offset_that_leaves_64_bits_is_refused():
    body = encode_records([(0, None, None, ()), (0, None, None, ())])
    fields = {"count": 2, "last_offset_delta": 1}
    assert RecordBatch(sealed(body, base_offset=(1 << 63) - 2, **fields)).records()
    with pytest.raises(ProtocolError):
        RecordBatch(sealed(body, base_offset=(1 << 63) - 1, **fields)).records()


def test_a_header_name_that_is_no_text_is_read_as_java_reads_it():
    body = encode_records([(0, None, None, (("ab", b"v"),))]).replace(b"ab", b"a\xff")
    (record,) = RecordBatch(sealed(body, count=1)).records()
    assert record.headers == (("a\ufffd", b"v"),)


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
