from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.log.record_filter import (
    DIGEST_BYTES,
    ENTRY_BYTES,
    BatchRetention,
    CleanedTransactionMetadata,
    KeyMap,
    filtered,
    scan,
)
from kserver.log.segment import Header
from kserver.log.transaction_index import AbortedTransaction
from kserver.wire.batch import (
    DELETE_HORIZON,
    HEADER,
    ControlType,
    NewRecord,
    RecordBatch,
    encode_batch,
    end_transaction_marker,
)
from kserver.wire.compression import Compression
from kserver.wire.records import encode_records

NOW_MS, RETENTION_MS = 1_700_000_000_000, 1000
PLAIN = BatchRetention()

keys = st.none() | st.binary(max_size=40)
new_records = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        keys,
        keys,
        st.lists(st.tuples(st.text(max_size=5), keys), max_size=2),
    ),
    min_size=1,
    max_size=80,
)


@given(new_records)
def test_scan_finds_what_decoding_finds(records):
    data = encode_records(records)
    found = scan(data, len(records))
    base = records[0][0]
    assert [(base + r[3], r[4], r[5], r[6]) for r in found] == [
        (timestamp, n, key, value is not None)
        for n, (timestamp, key, value, _) in enumerate(records)
    ]
    assert b"".join(data[r[0] : r[1]] for r in found) == data


def batch_of(*values: tuple[bytes | None, bytes | None], **fields: object) -> bytes:
    records: list[NewRecord] = [
        (NOW_MS + n, key, value, ()) for n, (key, value) in enumerate(values)
    ]
    return encode_batch(records, **fields)


def header_of(data: bytes | memoryview) -> Header:
    return Header._make(HEADER.unpack_from(data))


def map_of(*batches: bytes) -> KeyMap:
    found = KeyMap(1 << 20)
    for data in batches:
        found.note(header_of(data), RecordBatch(data).unfolded())
        found.next_offset = header_of(data).last_offset + 1
    return found


def left_of(
    data: bytes, known: KeyMap, verdict: BatchRetention = PLAIN, now_ms: int = NOW_MS
) -> bytes:
    return bytes(filtered(RecordBatch(data), header_of(data), verdict, known, now_ms, RETENTION_MS))


def rows_of(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    batch = RecordBatch(data)
    assert batch.is_valid_crc()
    return [(r.offset, r.key, r.value) for r in batch.records()]


@pytest.mark.parametrize("codec", list(Compression))
def test_only_the_last_record_of_a_key_stays_with_its_offset_and_time(codec):
    data = batch_of(
        (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), base_offset=10, compression=codec
    )
    later = batch_of((b"b", b"5"), base_offset=14)
    left = left_of(data, map_of(data, later))
    assert rows_of(left) == [(12, b"a", b"3"), (13, b"c", b"4")]
    before, after = RecordBatch(data), RecordBatch(left)
    assert after.compression is codec
    assert after.records() == [r for r in before.records() if r.offset in (12, 13)]
    for same in ("base_offset", "last_offset", "leader_epoch", "base_sequence", "max_timestamp"):
        assert getattr(after, same) == getattr(before, same)


def test_a_batch_of_which_all_stays_keeps_its_bytes():
    data = batch_of((b"a", b"1"), (b"b", b"2"), compression=Compression.gzip)
    batch = RecordBatch(data)
    assert filtered(batch, header_of(data), BatchRetention(), map_of(data), 0, 0) is batch.buffer


def test_the_largest_timestamp_is_that_of_what_stays():
    data = batch_of((b"a", b"1"), (b"b", b"2"))
    left = left_of(data, map_of(data, batch_of((b"b", b"3"), base_offset=2)))
    assert RecordBatch(left).max_timestamp == NOW_MS


def test_records_without_keys_go_and_what_the_map_has_not_seen_stays():
    keyless = batch_of((None, b"1"), (b"a", b"2"))
    assert rows_of(left_of(keyless, map_of(keyless))) == [(1, b"a", b"2")]
    later = batch_of((None, b"1"), (b"a", None), base_offset=2)
    assert left_of(later, map_of(keyless)) == later


def test_a_tombstone_stays_until_its_horizon():
    data = batch_of((b"a", None), (b"b", b"2"))
    known = map_of(data)
    first = left_of(data, known)
    assert RecordBatch(first).delete_horizon_ms == NOW_MS + RETENTION_MS
    assert RecordBatch(first).records() == RecordBatch(data).records()
    assert left_of(first, known, now_ms=NOW_MS + RETENTION_MS - 1) == first
    last = left_of(first, known, now_ms=NOW_MS + RETENTION_MS)
    assert rows_of(last) == [(1, b"b", b"2")]
    assert RecordBatch(last).records() == RecordBatch(data).records()[1:]


def test_a_batch_that_must_stay_does_so_without_records():
    data = batch_of(
        (b"a", b"1"),
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        compression=Compression.zstd,
    )
    known = map_of(data, batch_of((b"a", b"2"), base_offset=1))
    assert left_of(data, known) == b""
    empty = left_of(data, known, BatchRetention(stays=True))
    header = header_of(empty)
    assert (header.record_count, header.producer_id, header.producer_epoch) == (0, 7, 3)
    assert (header.base_sequence, header.last_offset) == (40, 0)
    assert rows_of(empty) == []
    assert left_of(empty, known, BatchRetention(stays=True)) == empty
    assert left_of(empty, known) == b""


def marker_of(*, commit: bool, offset: int, producer_id: int = 7) -> bytes:
    key, value = end_transaction_marker(commit, 0)
    return encode_batch(
        [(NOW_MS, key, value, ())],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def data_of(offset: int, producer_id: int = 7) -> bytes:
    return batch_of(
        (b"a", b"1"),
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


ABORTED = AbortedTransaction(7, 0, 1, 2)


def retention_of(
    walk: CleanedTransactionMetadata, data: bytes, marker: ControlType | None = None
) -> BatchRetention:
    return walk.check_retention(header_of(data), marker)


def test_an_aborted_transaction_goes_and_its_marker_when_nothing_of_it_is_left():
    marker = marker_of(commit=False, offset=1)
    walk = CleanedTransactionMetadata([ABORTED], {})
    assert retention_of(walk, data_of(0)) == BatchRetention(discards=True)
    assert retention_of(walk, marker, ControlType.abort) == BatchRetention(aborted=ABORTED)
    emptied = retention_of(CleanedTransactionMetadata([ABORTED], {}), marker, ControlType.abort)
    assert emptied == BatchRetention(discards=True, is_spent_marker=True)
    known = map_of()
    dated = left_of(marker, known, emptied)
    assert RecordBatch(dated).attributes & DELETE_HORIZON
    assert RecordBatch(dated).records() == RecordBatch(marker).records()
    assert left_of(dated, known, emptied, NOW_MS + RETENTION_MS - 1) == dated
    assert left_of(dated, known, emptied, NOW_MS + RETENTION_MS) == b""


def test_a_commit_stays_as_long_as_its_transaction_has_records():
    marker = marker_of(commit=True, offset=1)
    walk = CleanedTransactionMetadata([], {})
    assert retention_of(walk, data_of(0)) == BatchRetention()
    assert retention_of(walk, marker, ControlType.commit) == BatchRetention()
    assert retention_of(walk, marker, ControlType.commit).is_spent_marker


def test_a_transaction_is_not_taken_for_the_producers_aborted_one_before():
    """A walk that begins after the marker of the aborted one."""
    walk = CleanedTransactionMetadata([ABORTED], {})
    assert retention_of(walk, data_of(2)) == BatchRetention()


def test_the_last_batch_of_a_producer_stays_and_its_marker_where_there_is_none():
    walk = CleanedTransactionMetadata([], {7: (0, 0), 8: (None, 0)})
    assert retention_of(walk, data_of(0)).stays
    assert not retention_of(walk, marker_of(commit=True, offset=1), ControlType.commit).stays
    other = marker_of(commit=True, offset=2, producer_id=8)
    assert retention_of(walk, other, ControlType.commit).stays


@given(st.dictionaries(st.binary(max_size=2 * DIGEST_BYTES), st.integers(0, 1 << 60)))
def test_the_map_keeps_each_keys_newest_offset(offsets):
    known = KeyMap(1 << 20)
    for key, offset in offsets.items():
        data = batch_of((key, b""), base_offset=offset)
        known.note(header_of(data), RecordBatch(data).unfolded())
    assert {key: known.newest(key) for key in offsets} == offsets
    assert known.newest(b"of no batch, and not short") == -1


def test_the_map_is_full_but_never_for_one_batch_alone():
    known = KeyMap(3 * ENTRY_BYTES)
    assert known.has_room(1000)
    data = batch_of((b"a", b""), (b"b", b""))
    known.note(header_of(data), RecordBatch(data).unfolded())
    assert known.has_room(1)
    assert not known.has_room(2)
