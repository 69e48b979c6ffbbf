from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.consumer.completed_fetch import AbortedProducer, CompletedFetch
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import TopicPartition
from kserver.wire.batch import TimestampType, encode_batch, end_transaction_marker
from kserver.wire.compression import Compression

T = TopicPartition("t", 3)


def batch(base: int, count: int = 1, **fields) -> bytes:
    records = [(1000 + n, None, b"%d" % (base + n), ()) for n in range(count)]
    return encode_batch(records, base_offset=base, **fields)


def in_transaction(base: int, producer: int, count: int = 1) -> bytes:
    return batch(
        base, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    key, value = end_transaction_marker(commit, 0)
    return encode_batch(
        [(1000, key, value, ())],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def all_of(completed: CompletedFetch, most: int = 1000) -> list[int]:
    offsets = []
    while (found := completed.take(most)) is not None:
        assert 0 < len(found.records) <= most
        assert all(record.value == b"%d" % record.offset for record in found.records)
        offsets += [record.offset for record in found.records]
        assert found.next_offset > offsets[-1]
        assert completed.position == found.next_offset
    return offsets


def test_the_records_of_a_batch_come_together_with_what_they_share():
    data = batch(10, 3, leader_epoch=4, timestamp_type=TimestampType.log_append_time)
    found = CompletedFetch(T, 10, data).take(100)
    assert (found.topic, found.partition, found.leader_epoch) == ("t", 3, 4)
    assert found.timestamp_type is TimestampType.log_append_time
    assert [record.offset for record in found.records] == [10, 11, 12]
    assert found.next_offset == 13


def test_the_end_is_known_before_anything_is_decoded():
    assert CompletedFetch(T, 10, batch(10, 3) + batch(13, 4)).end == 17


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(0, 20),
    st.integers(1, 10),
    st.sampled_from(Compression),
)
def test_from_the_asked_offset_on_all_comes_once_whatever_the_portions(counts, start, most, codec):
    data, end = b"", 0
    for count in counts:
        data += batch(end, count, compression=codec)
        end += count
    completed = CompletedFetch(T, min(start, end - 1), data)
    assert all_of(completed, most) == list(range(min(start, end - 1), end))
    assert completed.position == end


def test_a_cut_batch_at_the_end_is_left_for_the_next_fetch():
    completed = CompletedFetch(T, 0, batch(0, 2) + batch(2, 5)[:-1])
    assert all_of(completed) == [0, 1]
    assert completed.end == 2


def test_no_data_is_no_records_and_no_progress():
    completed = CompletedFetch(T, 5, b"")
    assert completed.take(10) is None
    assert completed.end == completed.position == 5


def test_data_without_one_whole_batch_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="contains no complete batch"):
        CompletedFetch(T, 0, batch(0, 5)[:-1])


def test_a_gap_that_compaction_left_is_passed():
    assert all_of(CompletedFetch(T, 3, batch(0, 2) + batch(7, 2))) == [7, 8]


def test_a_wrong_checksum_is_refused_where_it_stands_unless_unchecked():
    broken = bytearray(batch(2, 2))
    broken[-2] ^= 1
    data = batch(0, 2) + bytes(broken)
    completed = CompletedFetch(T, 0, data)
    assert len(completed.take(10).records) == 2
    with pytest.raises(KafkaError, match="offset 2 of t-3") as caught:
        completed.take(10)
    assert caught.value.code is ErrorCode.corrupt_message
    assert completed.position == 2
    unchecked = CompletedFetch(T, 2, bytes(broken), check_crcs=False)
    assert len(unchecked.take(10).records) == 2


def test_control_records_are_passed_over():
    completed = CompletedFetch(T, 0, in_transaction(0, 5) + marker(1, 5, commit=True) + batch(2))
    assert all_of(completed) == [0, 2]


def test_a_control_record_at_the_end_still_moves_the_position():
    completed = CompletedFetch(T, 0, in_transaction(0, 5) + marker(1, 5, commit=True))
    assert all_of(completed) == [0]
    assert completed.position == 2


def test_what_an_aborted_transaction_wrote_is_left_out():
    data = (
        in_transaction(0, producer=5)
        + in_transaction(1, producer=6)
        + batch(2)
        + in_transaction(3, producer=5, count=2)
        + marker(5, 5, commit=False)
        + in_transaction(6, producer=5)
        + marker(7, 6, commit=True)
        + marker(8, 5, commit=True)
    )
    aborted = [AbortedProducer(0, 5)]
    assert all_of(CompletedFetch(T, 0, data, aborted=aborted)) == [1, 2, 6]
    assert all_of(CompletedFetch(T, 0, data)) == [0, 1, 2, 3, 4, 6]


def test_a_later_transaction_of_the_same_producer_is_aborted_from_its_own_start():
    data = (
        in_transaction(0, producer=5)
        + marker(1, 5, commit=True)
        + in_transaction(2, producer=5)
        + marker(3, 5, commit=False)
        + in_transaction(4, producer=5)
        + marker(5, 5, commit=True)
        + batch(6)
    )
    assert all_of(CompletedFetch(T, 0, data, aborted=[AbortedProducer(2, 5)])) == [0, 4, 6]


def test_what_the_producer_wrote_outside_of_transactions_is_kept():
    data = batch(0, producer_id=5, producer_epoch=0, base_sequence=0) + in_transaction(1, 5)
    assert all_of(CompletedFetch(T, 0, data, aborted=[AbortedProducer(0, 5)])) == [0]


MANY = 70_000


@pytest.fixture(scope="module")
def large() -> bytes:
    return batch(0, MANY, compression=Compression.zstd)


def test_a_batch_of_very_many_records_is_never_in_memory_as_a_whole(large):
    tracemalloc.start()
    try:
        completed = CompletedFetch(T, 0, large)
        found = completed.take(10_000)
        assert [r.value for r in found.records[:2]] == [b"0", b"1"]
        assert tracemalloc.get_traced_memory()[1] < 100 * MANY, "a record takes some 200 bytes"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("start", [0, 3, 5000, 1 << 16, MANY - 1])
def test_and_all_of_it_comes_once(large, start):
    data = large + batch(MANY, 2)
    assert all_of(CompletedFetch(T, start, data), 3000) == list(range(start, MANY + 2))


def test_data_that_ends_before_the_asked_offset_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="the fetch of t-3 from offset 13 ended at 13"):
        CompletedFetch(T, 13, batch(10, 3))
