"""Replicas compared: what is told where they differ, how far it has come, and sums."""

import hashlib

import pytest

from kcli.partitions.replica_comparison import (
    OffsetsDiffer,
    Replica,
    ReplicaComparison,
    ReplicaSum,
    UnreadableReplica,
)
from kserver.errors import ProtocolError
from kserver.model import TopicPartition
from kserver.wire.batch import CRC_START, HEADER_SIZE, RecordBatch, encode_batch
from kserver.wire.checksum import crc32c

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(offset, *values):
    return encode_batch([(5, None, value, ()) for value in values], base_offset=offset)


LOG = batch(0, b"a", b"b") + batch(2, b"c") + batch(3, b"d", b"e")
BATCHES = (len(batch(0, b"a", b"b")), len(batch(2, b"c")))


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def compared(*replicas, offset=0):
    """The comparison of one partition after a round, and what it told."""
    comparison = ReplicaComparison({P: offset})
    told = list(comparison.compare({P: dict(enumerate(replicas, 1))}))
    return comparison, told


def test_replicas_that_hold_the_same_are_verified_to_the_high_watermark():
    comparison, told = compared(Replica(LOG, 5), Replica(LOG, 5))
    assert (told, comparison.offsets, comparison.lag) == ([], {P: 5}, (0, P, 5))


def test_what_is_not_committed_everywhere_waits():
    comparison, told = compared(Replica(LOG, 5), Replica(LOG, 4))
    assert (told, comparison.offsets, comparison.lag) == ([], {P: 3}, (2, P, 3))


def test_what_a_replica_does_not_have_waits():
    comparison, told = compared(Replica(LOG, 5), Replica(LOG[: BATCHES[0]], 2))
    assert (told, comparison.offsets) == ([], {P: 2})
    comparison, told = compared(Replica(LOG, 5), Replica(b"", -1))
    assert (told, comparison.offsets, comparison.lag) == ([], {P: 0}, (5, P, 0))


def test_a_batch_that_is_cut_short_is_fetched_again():
    comparison, told = compared(Replica(LOG, 5), Replica(LOG[:-1], 5))
    assert (told, comparison.offsets) == ([], {P: 3})


def test_a_stored_checksum_that_differs_is_told_and_the_rest_verified():
    other = flipped(LOG, BATCHES[0] + CRC_START - 1)
    comparison, told = compared(Replica(LOG, 5), Replica(other, 5), Replica(LOG, 5))
    sums = (RecordBatch(LOG, BATCHES[0]).crc, RecordBatch(other, BATCHES[0]).crc)
    assert told == [
        "partition t-0 has unmatched checksum at offset 2; "
        f"replica 1's checksum {sums[0]}; replica 2's checksum {sums[1]}"
    ]
    assert comparison.offsets == {P: 5}


def test_bytes_that_differ_under_the_same_checksum_are_told():
    at = BATCHES[0] + HEADER_SIZE + 3
    other = flipped(LOG, at)
    assert RecordBatch(LOG, BATCHES[0]).crc == RecordBatch(other, BATCHES[0]).crc
    _, told = compared(Replica(LOG, 5), Replica(other, 5))
    sums = [crc32c(log[BATCHES[0] + CRC_START : sum(BATCHES)]) for log in (LOG, other)]
    assert told == [
        "partition t-0 has unmatched checksum at offset 2; "
        f"replica 1's checksum {sums[0]}; replica 2's checksum {sums[1]}"
    ]


def test_other_offsets_end_it():
    other = batch(0, b"a") + batch(1, b"b")
    with pytest.raises(OffsetsDiffer) as ended:
        compared(Replica(LOG, 5), Replica(other, 5))
    told = "partition t-0: replica 1's offset 1 doesn't match replica 2's offset 0"
    assert str(ended.value) == told


def test_what_is_no_batch_ends_it():
    broken = flipped(LOG, 16)
    with pytest.raises(UnreadableReplica) as ended:
        compared(Replica(LOG, 5), Replica(broken, 5))
    assert str(ended.value).startswith("Error in processing replica 2 in partition t-0 at offset 0")


def test_the_greatest_lag_is_told_and_a_round_without_any_answer_tells_none():
    comparison = ReplicaComparison({P: 0, Q: 4})
    both = {1: Replica(b"", 7), 2: Replica(b"", 6)}
    assert list(comparison.compare({P: {1: Replica(b"", 2)}, Q: both})) == []
    assert comparison.lag == (3, Q, 4)
    nobody = {1: Replica(b"", -1)}
    assert list(comparison.compare({P: nobody, Q: nobody})) == []
    assert comparison.lag.offsets == -1


def test_bytes_are_summed_between_two_offsets():
    whole = ReplicaSum(2, 5)
    whole.take(LOG)
    assert whole.is_done
    assert whole.sha256 == hashlib.sha256(LOG[BATCHES[0] :]).hexdigest()
    assert whole.bytes == len(LOG) - BATCHES[0]
    in_parts = ReplicaSum(2, 5)
    in_parts.take(LOG[:-1])
    assert (in_parts.is_done, in_parts.next_offset) == (False, 3)
    in_parts.take(LOG)
    assert (in_parts.sha256, in_parts.bytes) == (whole.sha256, whole.bytes)


def test_a_batch_beyond_the_end_is_not_summed():
    part = ReplicaSum(0, 4)
    part.take(LOG)
    assert part.is_done
    assert part.sha256 == hashlib.sha256(LOG[: sum(BATCHES)]).hexdigest()


def test_nothing_is_summed_up_at_once():
    assert ReplicaSum(3, 3).is_done
    with pytest.raises(ProtocolError):
        ReplicaSum(0, 5).take(flipped(LOG, 16))
