from __future__ import annotations

import pytest

from kcli.client.partition_queue import PartitionQueue, ProducerBatch, Rules
from kcli.client.verdict import Verdict, verdict_of
from kserver.errors import ErrorCode
from kserver.model import TopicPartition


def batch(records: int = 1, *, sequence: int = 0, attempts: int = 0) -> ProducerBatch:
    batch = ProducerBatch(PartitionQueue(TopicPartition("t", 0), Rules()), 1, 0.0)
    batch.records = [(0, None, b"", ())] * records
    batch.base_sequence = sequence
    batch.attempts = attempts
    return batch


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.none, Verdict.DELIVERED),
        (ErrorCode.duplicate_sequence_number, Verdict.DELIVERED),
        (ErrorCode.out_of_order_sequence_number, Verdict.OUT_OF_ORDER),
        (ErrorCode.unknown_producer_id, Verdict.NEW_EPOCH),
        (ErrorCode.invalid_producer_epoch, Verdict.NEW_EPOCH),
        (ErrorCode.message_too_large, Verdict.FAILED),
        (ErrorCode.topic_authorization_failed, Verdict.FAILED),
        (ErrorCode.invalid_timestamp, Verdict.FAILED),
        (ErrorCode.not_leader_or_follower, Verdict.AGAIN),
        (ErrorCode.network_exception, Verdict.AGAIN),
    ],
)
def test_what_becomes_of_a_batch_of_one_record(code, verdict):
    assert verdict_of(code, batch(), retries=5) is verdict


def test_a_batch_that_is_too_large_is_split_while_it_can_be():
    assert verdict_of(ErrorCode.message_too_large, batch(2), retries=0) is Verdict.SPLIT
    assert verdict_of(ErrorCode.message_too_large, batch(1), retries=9) is Verdict.FAILED


def test_without_a_sequence_there_is_no_order_to_lose():
    for code in (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id):
        assert verdict_of(code, batch(sequence=-1), retries=9) is Verdict.FAILED


@pytest.mark.parametrize("code", [c for c in ErrorCode if c.retriable])
def test_after_the_last_retry_every_error_is_final(code):
    assert verdict_of(code, batch(attempts=2), retries=3) is not Verdict.FAILED
    assert verdict_of(code, batch(attempts=3), retries=3) is Verdict.FAILED
