import struct
from dataclasses import replace

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.log.validator import InvalidRecords, Origin, validate, validate_replicated
from kserver.wire import varint
from kserver.wire.batch import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    RecordBatch,
    TimestampType,
    encode_batch,
    encode_records,
    end_transaction_marker,
)
from kserver.wire.checksum import crc32c
from kserver.wire.compression import Compression, compress
from tests.support.record_model import FIELDS

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
DEFAULTS = TopicConfig()
HEADER_ALONE = replace(DEFAULTS, validate_records="header")
STAMPED = replace(DEFAULTS, message_timestamp_type="LogAppendTime")
ONE = ((NOW, b"key", b"value", ()),)
THREE = (
    (NOW - 5, b"a", b"1", (("h", b"x"), ("n", None))),
    (NOW, b"b", None, ()),
    (NOW - 2, b"c", b"", ()),
)


def produced(records=ONE, **fields):
    return memoryview(bytearray(encode_batch(records, **fields)))


def forged(records=ONE, *, body=None, **fields):
    """A batch whose header says what it should not, with a right CRC unless one is given."""
    good = encode_batch(records)
    body = good[HEADER_SIZE:] if body is None else body
    header = dict(zip(FIELDS, HEADER.unpack_from(good), strict=True))
    header["batch_length"] = HEADER_SIZE - 12 + len(body)
    header |= fields
    data = bytearray(HEADER.pack(*header.values()) + body)
    if "crc" not in fields:
        struct.pack_into(">I", data, 17, crc32c(data[CRC_START:]))
    return memoryview(data)


def accepted(records, config=DEFAULTS, *, origin=Origin.client, compacted=False):
    return validate(
        records, config, NOW, origin=origin, first_offset=100, leader_epoch=7, compacted=compacted
    )


def refused(records, config=DEFAULTS, **options):
    before = bytes(records)
    with pytest.raises(KafkaError) as caught:
        accepted(records, config, **options)
    assert bytes(records) == before, "a refused batch was patched"
    return caught.value


# What is accepted, and what is stamped


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("config", [DEFAULTS, HEADER_ALONE])
def test_offset_and_epoch_are_stamped_in_place_and_the_crc_still_holds(codec, config):
    records = produced(THREE, compression=codec, producer_id=5, producer_epoch=1, base_sequence=20)
    validated = accepted(records, config)
    assert validated.buffer is records
    assert validated.log_append_time_ms == -1
    (batch,) = validated.batches
    assert batch._asdict() == {
        "position": 0,
        "size": len(records),
        "base_offset": 100,
        "last_offset": 102,
        "max_timestamp": NOW,
        "producer_id": 5,
        "producer_epoch": 1,
        "base_sequence": 20,
        "record_count": 3,
        "attributes": codec,
        "leader_epoch": 7,
    }
    stamped = RecordBatch(records)
    assert (stamped.base_offset, stamped.leader_epoch) == (100, 7)
    assert stamped.is_valid_crc()
    assert [r.offset for r in stamped.records()] == [100, 101, 102]
    assert [r[1:] for r in stamped.records()] == list(THREE)


def test_log_append_time_replaces_the_producers_timestamps():
    for records in (produced(THREE), produced(THREE, compression=Compression.gzip)):
        validated = accepted(records, STAMPED)
        assert validated.log_append_time_ms == NOW
        (batch,) = validated.batches
        assert batch.max_timestamp == NOW
        assert batch.attributes & LOG_APPEND_TIME
        stamped = RecordBatch(records)
        assert stamped.timestamp_type is TimestampType.log_append_time
        assert stamped.max_timestamp == NOW
        assert stamped.attributes == batch.attributes
        assert stamped.is_valid_crc()
        assert {r.timestamp for r in stamped.records()} == {NOW}


def test_log_append_time_takes_any_timestamp():
    accepted(produced([(NOW + 30 * HOUR_MS, None, b"", ())]), STAMPED)
    accepted(produced([(0, None, b"", ())]), replace(STAMPED, message_timestamp_before_max_ms=0))


@pytest.mark.parametrize(
    ("target", "codec"),
    [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)],
)
@pytest.mark.parametrize("sent", Compression)
def test_another_codec_in_compression_type_rebuilds_the_batch(sent, target, codec):
    config = replace(DEFAULTS, compression_type=target)
    records = produced(
        THREE,
        compression=sent,
        producer_id=5,
        producer_epoch=1,
        base_sequence=20,
        transactional=True,
    )
    validated = accepted(records, config)
    assert (validated.buffer is records) == (sent == codec)
    (batch,) = validated.batches
    rebuilt = RecordBatch(validated.buffer)
    assert batch.attributes == rebuilt.attributes == codec | TRANSACTIONAL
    assert batch.size == rebuilt.size == len(validated.buffer)
    assert batch[2:] == (100, 102, NOW, 5, 1, 20, 3, codec | TRANSACTIONAL, 7)
    assert rebuilt.is_valid_crc()
    assert rebuilt.leader_epoch == 7
    assert (rebuilt.producer_id, rebuilt.producer_epoch, rebuilt.base_sequence) == (5, 1, 20)
    assert (rebuilt.base_timestamp, rebuilt.max_timestamp) == (NOW - 5, NOW)
    assert [r.offset for r in rebuilt.records()] == [100, 101, 102]
    assert [r[1:] for r in rebuilt.records()] == list(THREE)


def test_a_rebuilt_batch_takes_log_append_time_too():
    validated = accepted(produced(THREE), replace(STAMPED, compression_type="zstd"))
    rebuilt = RecordBatch(validated.buffer)
    assert rebuilt.is_valid_crc()
    assert rebuilt.max_timestamp == NOW == validated.batches[0].max_timestamp
    assert {r.timestamp for r in rebuilt.records()} == {NOW}


def test_a_rebuilt_batch_is_compressed_at_the_topics_level():
    text = " ".join(str(n * n) for n in range(5000)).encode()
    sizes = [
        accepted(
            produced([(NOW, None, text, ())]),
            replace(DEFAULTS, compression_type="gzip", compression_gzip_level=level),
        )
        .batches[0]
        .size
        for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]


def test_a_coordinators_control_batch_is_taken_and_never_compressed():
    key, value = end_transaction_marker(commit=True, coordinator_epoch=3)
    records = produced(
        [(NOW, key, value, ())],
        control=True,
        transactional=True,
        producer_id=5,
        producer_epoch=1,
    )
    config = replace(DEFAULTS, compression_type="zstd")
    validated = accepted(records, config, origin=Origin.coordinator, compacted=True)
    assert validated.buffer is records
    assert validated.batches[0].attributes == CONTROL | TRANSACTIONAL


def test_a_coordinator_writes_transactionally_without_a_sequence():
    records = produced(transactional=True, producer_id=5, producer_epoch=0)
    assert accepted(records, origin=Origin.coordinator).batches[0].base_sequence == -1


def test_records_without_a_timestamp_are_taken_whatever_the_bounds():
    config = replace(DEFAULTS, message_timestamp_before_max_ms=0)
    (batch,) = accepted(produced([(-1, None, b"", ())]), config).batches
    assert batch.max_timestamp == -1


@pytest.mark.parametrize("config", [DEFAULTS, HEADER_ALONE])
@pytest.mark.parametrize("said", [-1, NOW - 6, NOW - 1_000_000])
def test_a_maximum_timestamp_below_the_base_timestamp_is_corrected(config, said):
    records = forged(THREE, max_timestamp=said)
    (batch,) = accepted(records, config).batches
    assert batch.max_timestamp == NOW
    assert RecordBatch(records).max_timestamp == NOW
    assert RecordBatch(records).is_valid_crc()


@pytest.mark.parametrize("config", [DEFAULTS, replace(HEADER_ALONE, compression_type="gzip")])
def test_a_walk_corrects_any_wrong_maximum_timestamp(config):
    buffer, (batch,), _ = accepted(forged(THREE, max_timestamp=NOW - 1), config)
    assert batch.max_timestamp == RecordBatch(buffer).max_timestamp == NOW
    assert RecordBatch(buffer).is_valid_crc()


# What is refused, in the order of the table


@pytest.mark.parametrize("size", [0, 8, 12, 16, 17, 60])
def test_less_than_one_batch_is_refused(size):
    assert refused(produced()[:size]).code is ErrorCode.invalid_record


def test_a_batch_that_ends_early_is_refused():
    assert refused(produced()[:-1]).code is ErrorCode.invalid_record


def test_a_second_batch_or_trailing_bytes_are_refused():
    for more in (produced(), b"\0", b"\0" * 70):
        records = memoryview(bytearray(bytes(produced()) + bytes(more)))
        error = refused(records)
        assert error.code is ErrorCode.invalid_record
        assert "exactly one" in error.message


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_message_formats_are_refused(magic):
    error = refused(forged(magic=magic))
    assert error.code is ErrorCode.invalid_record
    assert "magic version 2" in error.message


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_corrupt(magic):
    assert refused(forged(magic=magic)).code is ErrorCode.corrupt_message


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48])
def test_a_length_that_no_batch_has_is_corrupt(length):
    assert refused(forged(batch_length=length)).code is ErrorCode.corrupt_message


def test_a_client_starts_at_offset_zero():
    assert refused(forged(base_offset=1)).code is ErrorCode.invalid_record
    accepted(forged(base_offset=1), origin=Origin.coordinator)


def test_a_batch_may_be_max_message_bytes_and_no_more():
    records = produced()
    accepted(produced(), replace(DEFAULTS, max_message_bytes=len(records)))
    error = refused(records, replace(DEFAULTS, max_message_bytes=len(records) - 1))
    assert error.code is ErrorCode.message_too_large


def test_a_rebuilt_batch_may_not_exceed_max_message_bytes_either():
    records = produced([(NOW, None, bytes(10_000), ())], compression=Compression.gzip)
    config = replace(DEFAULTS, max_message_bytes=5_000)
    accepted(memoryview(bytearray(records)), config)
    config = replace(config, compression_type="uncompressed")
    assert refused(records, config).code is ErrorCode.message_too_large


@given(st.integers(CRC_START * 8, len(produced()) * 8 - 1))
def test_one_flipped_bit_is_corrupt(bit):
    records = produced()
    records[bit // 8] ^= 1 << bit % 8
    assert refused(records).code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec):
    assert refused(forged(attributes=codec)).code is ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("bits", [DELETE_HORIZON, *(1 << n for n in range(7, 15)), -(1 << 15)])
def test_attributes_without_a_meaning_to_producers_are_left_as_they_are(bits):
    records = forged(attributes=bits)
    sent = bytes(records)
    (batch,) = accepted(records).batches
    assert batch.attributes == RecordBatch(records).attributes == bits
    assert bytes(records[HEADER_SIZE - 40 :]) == sent[HEADER_SIZE - 40 :]


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (STAMPED, DELETE_HORIZON | LOG_APPEND_TIME),
        (replace(DEFAULTS, compression_type="gzip"), Compression.gzip),
        (DEFAULTS, DELETE_HORIZON),
    ],
    ids=["stamped", "rebuilt", "corrected"],
)
def test_unused_attributes_are_cleared_where_they_are_written_again(config, kept):
    records = forged(attributes=DELETE_HORIZON | 0x80 | 0x100, max_timestamp=NOW + 1)
    validated = accepted(records, config)
    written = RecordBatch(validated.buffer)
    assert validated.batches[0].attributes == written.attributes == kept
    assert written.is_valid_crc()


@pytest.mark.parametrize(
    ("count", "last_offset_delta"), [(0, -1), (0, 0), (1, 1), (2, 0), (-1, -2), (-1, 0)]
)
@pytest.mark.parametrize("origin", [Origin.client, Origin.coordinator])
def test_the_count_must_agree_with_the_offsets(count, last_offset_delta, origin):
    records = forged(count=count, last_offset_delta=last_offset_delta)
    assert refused(records, origin=origin).code is ErrorCode.invalid_record


def test_clients_may_not_write_control_records():
    records = produced(control=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert refused(records).code is ErrorCode.invalid_record


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -2},
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
        {"attributes": TRANSACTIONAL},
    ],
)
def test_producer_id_epoch_and_sequence_go_together(fields):
    assert refused(forged(**fields)).code is ErrorCode.invalid_record


@pytest.mark.parametrize("config", [DEFAULTS, HEADER_ALONE])
@pytest.mark.parametrize("codec", [Compression.none, Compression.lz4])
def test_log_append_time_that_a_producer_claims_becomes_create_time(config, codec):
    records = produced(THREE, timestamp_type=TimestampType.log_append_time, compression=codec)
    (batch,) = accepted(records, config).batches
    written = RecordBatch(records)
    assert (batch.attributes, batch.max_timestamp) == (codec, NOW)
    assert (written.attributes, written.max_timestamp) == (codec, NOW)
    assert written.is_valid_crc()
    assert [r.timestamp for r in written.records()] == [record[0] for record in THREE]


@pytest.mark.parametrize(
    ("config", "max_timestamp"),
    [
        (STAMPED, NOW),
        (DEFAULTS, -1),
        (DEFAULTS, NOW + HOUR_MS + 1),
        (replace(DEFAULTS, message_timestamp_before_max_ms=1000), NOW - 1001),
    ],
)
def test_log_append_time_is_refused_where_it_is_none_or_out_of_bounds_or_the_topics(
    config, max_timestamp
):
    records = forged(attributes=LOG_APPEND_TIME, max_timestamp=max_timestamp)
    assert refused(records, config).code is ErrorCode.invalid_timestamp


@pytest.mark.parametrize("config", [DEFAULTS, HEADER_ALONE])
def test_lz4_blocks_that_depend_on_each_other_are_refused_with_the_remedy(config):
    body = lz4.frame.compress(bytes(range(256)) * 1000, block_linked=True, block_size=4)
    error = refused(forged(attributes=Compression.lz4, body=body), config)
    assert error.code is ErrorCode.invalid_record
    assert "block_linked=False" in error.message


@pytest.mark.parametrize("config", [DEFAULTS, HEADER_ALONE])
def test_a_timestamp_may_be_as_far_ahead_as_the_topic_allows(config):
    accepted(produced([(NOW + HOUR_MS, None, b"", ())]), config)
    records = produced([(NOW, None, b"", ()), (NOW + HOUR_MS + 1, None, b"", ())])
    error = refused(records, config)
    assert error.code is ErrorCode.invalid_timestamp
    assert [e.batch_index for e in error.record_errors] == [1]


def test_a_timestamp_may_be_as_far_back_as_the_topic_allows():
    config = replace(DEFAULTS, message_timestamp_before_max_ms=1000)
    accepted(produced([(NOW - 1000, None, b"", ())]), config)
    error = refused(produced([(NOW - 1001, None, b"", ()), (NOW, None, b"", ())]), config)
    assert error.code is ErrorCode.invalid_timestamp
    assert isinstance(error, InvalidRecords)
    assert [e.batch_index for e in error.record_errors] == [0]


def test_a_base_timestamp_that_is_no_records_own_does_not_count():
    config = replace(DEFAULTS, message_timestamp_before_max_ms=1000)
    record = b"\0" + varint.encode(NOW) + b"\0\x02k\0\0"
    records = forged(base_timestamp=0, body=varint.encode(len(record)) + record)
    assert accepted(records, config).batches[0].max_timestamp == NOW


@pytest.mark.parametrize("codec", [Compression.none, Compression.zstd])
@pytest.mark.parametrize("config", [DEFAULTS, HEADER_ALONE])
@pytest.mark.parametrize("timestamp", [-2, -86_400_000, -(1 << 62)])
def test_timestamps_before_1970_are_accepted_and_leave_the_batch_without_a_maximum(
    timestamp, config, codec
):
    records = produced([(timestamp, None, b"", ())], compression=codec)
    (batch,) = accepted(records, config).batches
    written = RecordBatch(records)
    assert batch.max_timestamp == written.max_timestamp == -1
    assert written.is_valid_crc()
    assert [r.timestamp for r in written.records()] == [timestamp]


def test_a_later_timestamp_in_the_batch_is_its_maximum():
    records = [(time, None, b"", ()) for time in (-5, 1000, -7)]
    (batch,) = accepted(produced(records)).batches
    assert batch.max_timestamp == 1000


def test_the_bound_to_the_past_holds_before_1970_too():
    config = replace(DEFAULTS, message_timestamp_before_max_ms=NOW + 1000)
    accepted(produced([(-1000, None, b"", ())]), config)
    error = refused(produced([(-1001, None, b"", ())]), config)
    assert (error.code, [e.batch_index for e in error.record_errors]) == (
        ErrorCode.invalid_timestamp,
        [0],
    )
    assert refused(produced([(-1 << 63, None, b"", ())])).code is ErrorCode.invalid_timestamp


def test_log_append_time_takes_a_timestamp_before_1970():
    (batch,) = accepted(produced([(-1 << 63, None, b"", ())]), STAMPED).batches
    assert batch.max_timestamp == NOW


def test_a_batch_of_before_1970_is_rebuilt_as_it_is():
    config = replace(DEFAULTS, compression_type="gzip")
    validated = accepted(produced([(-5, None, b"", ())]), config)
    assert validated.batches[0].max_timestamp == -1
    assert [r.timestamp for r in RecordBatch(validated.buffer).records()] == [-5]


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_takes_no_record_without_a_key(codec):
    keyless = (NOW, None, b"v", ())
    records = produced([ONE[0], keyless, ONE[0], keyless], compression=codec)
    error = refused(records, compacted=True)
    assert error.code is ErrorCode.invalid_record
    assert [e.batch_index for e in error.record_errors] == [1, 3]
    assert "key" in error.record_errors[0].message
    accepted(produced([ONE[0], keyless], compression=codec))
    accepted(produced(THREE, compression=codec), compacted=True)
    accepted(produced([(NOW, b"", b"v", ())], compression=codec), compacted=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"config": HEADER_ALONE, "compacted": True},
        {"config": replace(HEADER_ALONE, compression_type="gzip")},
    ],
)
def test_records_that_are_not_what_the_header_says_are_refused_when_walked(options):
    """All ways to be that are in tests/contract/test_record_decoders.py."""
    body = encode_records(ONE) + b"\0"
    assert refused(forged(body=body), **options).code is ErrorCode.invalid_record
    offset_1 = b"\x0e\0\0\x02\x02k\0\0"
    assert refused(forged(body=offset_1), **options).code is ErrorCode.invalid_record


def test_compressed_records_that_do_not_unfold_are_refused_when_walked():
    records = forged(body=b"garbage" * 3, attributes=Compression.zstd)
    assert refused(records).code is ErrorCode.invalid_record


def test_the_header_alone_decides_unless_a_walk_is_asked_for():
    accepted(forged(body=b"never looked at"), HEADER_ALONE)


@given(
    st.lists(
        st.tuples(
            st.integers(NOW - 10**12, NOW + HOUR_MS),
            st.none() | st.binary(max_size=5),
            st.none() | st.binary(max_size=50),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(Compression),
    st.sampled_from([DEFAULTS, HEADER_ALONE, STAMPED, replace(DEFAULTS, compression_type="lz4")]),
)
def test_what_is_written_holds_the_records_that_were_sent(records, codec, config):
    validated = accepted(produced(records, compression=codec), config)
    written = RecordBatch(validated.buffer)
    assert written.is_valid_crc()
    assert written.size == validated.batches[0].size
    sent = [(key, value, tuple(headers)) for _, key, value, headers in records]
    assert [(r.key, r.value, r.headers) for r in written.records()] == sent
    assert [r.offset for r in written.records()] == list(range(100, 100 + len(records)))
    if config is not STAMPED:
        assert [r.timestamp for r in written.records()] == [record[0] for record in records]
        assert written.max_timestamp == max(record[0] for record in records)
    # A follower takes it as it is.
    followed = validate_replicated(validated.buffer, next_offset=100)
    assert list(followed.batches) == list(validated.batches)


# What a follower takes


def replicated(*first_offsets):
    parts = [encode_batch(THREE, base_offset=first, leader_epoch=2) for first in first_offsets]
    return memoryview(bytearray(b"".join(parts)))


def test_a_follower_keeps_offsets_and_epochs_and_gaps():
    records = replicated(10, 20)
    before = bytes(records)
    buffer, batches, _ = validate_replicated(records, next_offset=10)
    assert bytes(buffer) == before
    size = len(records) // 2
    assert [b[:4] for b in batches] == [(0, size, 10, 12), (size, size, 20, 22)]
    assert {b.leader_epoch for b in batches} == {2}


def test_a_follower_leaves_out_the_batch_that_is_cut_off():
    whole = len(replicated(0))
    for size in (whole, whole + 1, whole + 60, whole + 61, 2 * whole - 1):
        buffer, batches, _ = validate_replicated(replicated(0, 3)[:size], next_offset=0)
        assert (len(buffer), len(batches)) == (whole, 1)
    assert validate_replicated(memoryview(b""), next_offset=0).batches == []


@pytest.mark.parametrize(("first", "second"), [(9, 20), (10, 12), (10, 9)])
def test_a_follower_refuses_offsets_that_go_back(first, second):
    with pytest.raises(KafkaError) as caught:
        validate_replicated(replicated(first, second), next_offset=10)
    assert caught.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize(
    "fields", [{"crc": 1}, {"magic": 1}, {"batch_length": 10}, {"batch_length": -1}]
)
def test_a_follower_refuses_corrupt_batches(fields):
    with pytest.raises(KafkaError) as caught:
        validate_replicated(forged(**fields), next_offset=0)
    assert caught.value.code is ErrorCode.corrupt_message


def test_compressing_twice_is_not_taken_for_records():
    body = compress(Compression.gzip, compress(Compression.gzip, encode_records(ONE)))
    records = forged(body=body, attributes=Compression.gzip)
    assert refused(records).code is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [Compression.gzip, Compression.lz4, Compression.zstd])
@pytest.mark.parametrize(
    "config", [DEFAULTS, replace(HEADER_ALONE, compression_type="uncompressed")]
)
def test_a_batch_that_unfolds_to_too_much_to_look_at_is_too_large(codec, config):
    """Java's producer then sends it again in two."""
    small = replace(config, max_message_bytes=200_000)
    sent = produced([(NOW, b"k", bytes(16 * 200_000), ())], compression=codec)
    error = refused(sent, small)
    assert error.code is ErrorCode.message_too_large
    assert "decompresses" in error.message
    accepted(sent, replace(small, max_message_bytes=1 << 23))


def test_an_answer_names_only_so_many_refused_records():
    error = refused(produced([(NOW, None, b"v", ())] * 5000), compacted=True)
    assert "5000 record errors" in error.message
    assert [one.batch_index for one in error.record_errors] == list(range(100))
