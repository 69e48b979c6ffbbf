import io
import struct
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kserver.errors import KafkaError, ProtocolError
from kserver.wire.batch import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchBuilder,
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    batches,
    encode_batch,
    encode_records,
    end_transaction_marker,
    read_control_record,
)
from kserver.wire.checksum import crc32c
from kserver.wire.compression import Compression

NOW = 1_700_000_000_000
FIELDS = [
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
]

bytes_or_null = st.none() | st.binary(max_size=40) | st.sampled_from([bytes(64), bytes(8192)])
headers = st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=3).map(tuple)
timestamps = st.integers(NOW - 10_000, NOW + 10_000) | st.integers(-(1 << 61), 1 << 61)
records = st.lists(st.tuples(timestamps, bytes_or_null, bytes_or_null, headers), max_size=8)


# The format again, a byte at a time and with no thought of speed.


class Refused(Exception):
    pass


def slow_varint(number, size=0):
    """In at least `size` bytes, as an encoder may write that leaves room first."""
    zigzag = 2 * number if number >= 0 else -2 * number - 1
    out = []
    while zigzag > 0x7F or len(out) + 1 < size:
        out.append(zigzag % 0x80 + 0x80)
        zigzag //= 0x80
    return bytes([*out, zigzag])


def slow_read(source, size):
    data = source.read(size)
    if len(data) != size:
        raise Refused
    return data


def slow_read_varint(source, bits=32):
    zigzag = 0
    for place in range(10):
        (byte,) = slow_read(source, 1)
        zigzag += byte % 0x80 * 0x80**place
        if byte < 0x80:
            break
    else:
        raise Refused
    if zigzag >= 2**bits:
        raise Refused
    return zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2


def slow_read_bytes(source, nullable=True):
    start = source.tell()
    size = slow_read_varint(source)
    if size == -1 and nullable and source.tell() == start + 1:
        return None
    if size < 0:
        raise Refused
    return slow_read(source, size)


def slow_decode(data, base_offset, base_timestamp, count, last_offset_delta, append_time=None):
    source = io.BytesIO(data)
    found = []
    before = -1
    for _ in range(count):
        size = slow_read_varint(source)
        if size < 0:
            raise Refused
        start = source.tell()
        slow_read(source, 1)
        timestamp = base_timestamp + slow_read_varint(source, bits=64)
        if append_time is not None:
            timestamp = append_time
        delta = slow_read_varint(source)
        if not before < delta <= last_offset_delta or not -(2**63) <= timestamp < 2**63:
            raise Refused
        before = delta
        key, value = slow_read_bytes(source), slow_read_bytes(source)
        names = []
        header_count = slow_read_varint(source)
        if header_count < 0:
            raise Refused
        for _ in range(header_count):
            name = slow_read_bytes(source, nullable=False)
            names.append((name.decode(errors="replace"), slow_read_bytes(source)))
        if source.tell() != start + size:
            raise Refused
        found.append(Record(base_offset + delta, timestamp, key, value, tuple(names)))
    if source.read():
        raise Refused
    return found


def slow_encode(new, deltas=None, padding=0, attributes=0):
    """The records' bytes; every varint that is not a null takes at least `padding` bytes."""

    def counted(data):
        return b"\x01" if data is None else slow_varint(len(data), padding) + data

    out = []
    for delta, (timestamp, key, value, names) in zip(deltas or range(len(new)), new, strict=True):
        body = bytes([attributes])
        body += slow_varint(timestamp - new[0][0], padding) + slow_varint(delta, padding)
        body += counted(key) + counted(value) + slow_varint(len(names), padding)
        for name, content in names:
            body += counted(name.encode()) + counted(content)
        out.append(slow_varint(len(body), padding) + body)
    return b"".join(out)


def sealed(body, **fields):
    """A batch of any bytes whose length and checksum are right."""
    header = dict.fromkeys(FIELDS, 0) | {
        "batch_length": HEADER_SIZE - 12 + len(body),
        "magic": 2,
        "producer_id": -1,
    }
    batch = bytearray(HEADER.pack(*(header | fields).values()) + body)
    batch[17:21] = crc32c(batch[CRC_START:]).to_bytes(4)
    return bytes(batch)


# Records


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


def changed(body, edits):
    body = bytearray(body)
    for kind, place, byte in edits:
        at = place % (len(body) + 1)
        match kind:
            case "set":
                body[at : at + 1] = [byte]
            case "insert":
                body[at:at] = [byte]
            case "remove":
                del body[at : at + 1]
            case "cut":
                del body[at:]
    return bytes(body)


edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "insert", "remove", "cut"]),
        st.integers(0, 1 << 16),
        st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]),
    ),
    max_size=3,
)


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


# Batches


def test_the_header_holds_what_was_asked_for():
    new = [(NOW, b"k", b"v", ()), (NOW - 5, None, None, ()), (NOW - 1, b"", b"", ())]
    batch = RecordBatch(
        encode_batch(
            new,
            base_offset=100,
            leader_epoch=3,
            producer_id=4000,
            producer_epoch=5,
            base_sequence=7,
            transactional=True,
        )
    )
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (100, 102, 103)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW)
    assert (batch.producer_id, batch.producer_epoch) == (4000, 5)
    assert (batch.base_sequence, batch.last_sequence) == (7, 9)
    assert (batch.leader_epoch, batch.magic, batch.count, batch.last_offset_delta) == (3, 2, 3, 2)
    assert batch.attributes == TRANSACTIONAL
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.compression is Compression.none
    assert batch.timestamp_type is TimestampType.create_time
    assert batch.delete_horizon_ms is None
    assert batch.is_valid_crc()


@given(
    attributes=st.integers(0, 0x7F).filter(lambda a: a & 7 <= 4),
    numbers=st.lists(st.integers(0, 1 << 30), min_size=9, max_size=9),
)
def test_header_fields_are_read_where_they_are_written(attributes, numbers):
    named = dict(
        zip(
            [n for n in FIELDS if n not in ("batch_length", "magic", "crc", "attributes")],
            [n % 0x8000 for n in numbers],
            strict=True,
        )
    )
    batch = RecordBatch(sealed(b"body", attributes=attributes, **named))
    assert {name: getattr(batch, name) for name in named} == named
    assert batch.attributes == attributes
    assert batch.compression == attributes & 7
    assert batch.timestamp_type == bool(attributes & LOG_APPEND_TIME)
    assert batch.is_control == bool(attributes & CONTROL)
    horizon = named["base_timestamp"] if attributes & DELETE_HORIZON else None
    assert batch.delete_horizon_ms == horizon


@pytest.mark.parametrize("codec", Compression)
def test_records_survive_every_codec(codec):
    new = [(NOW + n, b"%d" % n, b"value" * n, (("h", None),)) for n in range(100)]
    batch = RecordBatch(encode_batch(new, compression=codec))
    assert batch.compression is codec
    assert [record[1:] for record in batch.records()] == new
    assert codec is Compression.none or batch.size < len(encode_batch(new)) / 5


def test_records_are_not_unpacked_past_the_limit():
    batch = RecordBatch(encode_batch([(0, None, bytes(5000), ())], compression=Compression.zstd))
    assert batch.records(limit_bytes=6000)
    with pytest.raises(KafkaError, match="corrupt_message"):
        batch.records(limit_bytes=4000)


def test_log_append_time_is_every_records_timestamp():
    new = [(NOW, None, b"a", ()), (NOW + 9, None, b"b", ())]
    batch = bytearray(encode_batch(new))
    struct.pack_into(">h", batch, CRC_START, LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, NOW + 500)
    stamped = RecordBatch(batch)
    assert stamped.timestamp_type is TimestampType.log_append_time
    assert [record.timestamp for record in stamped.records()] == [NOW + 500] * 2


def test_a_sequence_goes_on_at_zero_after_the_largest():
    body = encode_records([(0, None, None, ())] * 3)
    fields = {"count": 3, "last_offset_delta": 2}
    for base, last in [(5, 7), (0x7FFFFFFD, 0x7FFFFFFF), (0x7FFFFFFE, 0), (-1, -1)]:
        assert RecordBatch(sealed(body, base_sequence=base, **fields)).last_sequence == last


def test_a_batch_emptied_by_compaction_keeps_its_offsets():
    batch = RecordBatch(sealed(b"", base_offset=10, last_offset_delta=4))
    assert batch.records() == []
    assert batch.next_offset == 15


def test_a_changed_byte_breaks_the_checksum_but_offset_and_epoch_may_change():
    batch = bytearray(encode_batch([(NOW, b"k", b"v", ())]))
    batch[0:8] = (77).to_bytes(8)
    batch[12:16] = (5).to_bytes(4)
    assert RecordBatch(batch).is_valid_crc()
    for at in range(CRC_START, len(batch)):
        batch[at] ^= 1
        assert not RecordBatch(batch).is_valid_crc()
        batch[at] ^= 1


def test_a_view_holds_its_batch_alone():
    one, two = (encode_batch([(NOW, None, v, ())]) for v in (b"one", b"twotwo"))
    batch = RecordBatch(memoryview(b"junk" + one + two), 4)
    assert bytes(batch.buffer) == one
    assert batch.size == len(one)


def test_complete_batches_are_listed_and_a_cut_one_ends_them():
    parts = [encode_batch([(NOW, None, bytes(n), ())], base_offset=n) for n in range(3)]
    whole = b"".join(parts)
    for cut in range(len(whole) + 1):
        complete = [n for n in range(3) if cut >= sum(map(len, parts[: n + 1]))]
        assert [batch.base_offset for batch in batches(whole[:cut])] == complete


@pytest.mark.parametrize(
    ("at", "value"),
    [
        pytest.param(8, (48).to_bytes(4), id="shorter than a header"),
        pytest.param(8, (-1).to_bytes(4, signed=True), id="negative length"),
        pytest.param(16, b"\1", id="an old format"),
        pytest.param(16, b"\3", id="a format to come"),
        pytest.param(8, b"noise" * 4, id="noise"),
    ],
)
def test_what_is_no_batch_is_refused(at, value):
    broken = bytearray(encode_batch([(NOW, None, b"v", ())]))
    broken[at : at + len(value)] = value
    with pytest.raises(ProtocolError):
        RecordBatch(broken)
    with pytest.raises(ProtocolError):
        list(batches(broken))


def test_a_single_batch_may_not_be_cut():
    batch = encode_batch([(NOW, None, b"v", ())])
    for size in (0, 11, 60, len(batch) - 1):
        with pytest.raises(ProtocolError):
            RecordBatch(batch[:size])


def test_an_unknown_codec_is_refused():
    with pytest.raises(ProtocolError):
        RecordBatch(sealed(b"", attributes=5)).records()


@given(records.filter(bool))
@example([(0, None, None, (("\u20ac" * 1000, None),) * 3)])
def test_a_builder_builds_what_was_appended_within_the_size_it_said(new):
    builder = BatchBuilder()
    sizes = [builder.append(*record) for record in new]
    batch = builder.build(base_offset=3)
    assert batch == encode_batch(new, base_offset=3)
    assert sizes == sorted(sizes)
    assert len(batch) <= sizes[-1] == builder.size
    assert len(builder) == len(new)


# Control records


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_marker_says_how_the_transaction_ended(commit):
    key, value = end_transaction_marker(commit, coordinator_epoch=11)
    batch = RecordBatch(encode_batch([(NOW, key, value, ())], control=True, transactional=True))
    assert batch.is_control
    (record,) = batch.records()
    kind = ControlType.commit if commit else ControlType.abort
    assert read_control_record(record) == ControlRecord(kind, 11)


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 77, -1])
def test_control_records_of_other_kinds_are_told_apart(kind):
    record = Record(0, NOW, struct.pack(">hh", 0, kind), b"what Raft says")
    assert read_control_record(record).type is ControlType.unknown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\1"),
        (b"\0\0\0", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\1"),
    ],
)
def test_broken_control_records_are_refused(key, value):
    with pytest.raises(ProtocolError):
        read_control_record(Record(0, NOW, key, value))


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
