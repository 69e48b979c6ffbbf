"""Batches: their headers, codecs, checksums, and what is none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import KafkaError, ProtocolError
from kserver.wire.batch import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
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
from kserver.wire.compression import Compression
from tests.support.record_model import FIELDS, NOW, sealed

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


def test_records_are_not_unpacked_past_the_limit():
    batch = RecordBatch(encode_batch([(0, None, bytes(5000), ())], compression=Compression.zstd))
    assert batch.records(limit_bytes=6000)
    with pytest.raises(KafkaError, match="corrupt_message"):
        batch.records(limit_bytes=4000)


def test_a_sequence_goes_on_at_zero_after_the_largest():
    body = encode_records([(0, None, None, ())] * 3)
    fields = {"count": 3, "last_offset_delta": 2}
    for base, last in [(5, 7), (0x7FFFFFFD, 0x7FFFFFFF), (0x7FFFFFFE, 0), (-1, -1)]:
        assert RecordBatch(sealed(body, base_sequence=base, **fields)).last_sequence == last


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


def test_a_single_batch_may_not_be_cut():
    batch = encode_batch([(NOW, None, b"v", ())])
    for size in (0, 11, 60, len(batch) - 1):
        with pytest.raises(ProtocolError):
            RecordBatch(batch[:size])


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
