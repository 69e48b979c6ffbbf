from __future__ import annotations

import pytest

from kcli.client.producer.partition_queue import PartitionQueue, ProducerBatch, Rules
from kcli.client.producer.produce_decision import ProduceDecision, decide
from kserver.errors import ErrorCode
from kserver.model import TopicPartition


def batch(records: int = 1, *, sequence: int = 0, attempts: int = 0) -> ProducerBatch:
    batch = ProducerBatch(PartitionQueue(TopicPartition("t", 0), Rules()), 1, 0.0)
    batch.records = [(0, None, b"", ())] * records
    batch.base_sequence = sequence
    batch.attempts = attempts
    return batch


@pytest.mark.parametrize(
    ("code", "decision"),
    [
        (ErrorCode.none, ProduceDecision.DELIVERED),
        (ErrorCode.duplicate_sequence_number, ProduceDecision.DELIVERED),
        (ErrorCode.out_of_order_sequence_number, ProduceDecision.OUT_OF_ORDER),
        (ErrorCode.unknown_producer_id, ProduceDecision.NEW_EPOCH),
        (ErrorCode.invalid_producer_epoch, ProduceDecision.NEW_EPOCH),
        (ErrorCode.message_too_large, ProduceDecision.FAILED),
        (ErrorCode.topic_authorization_failed, ProduceDecision.FAILED),
        (ErrorCode.invalid_timestamp, ProduceDecision.FAILED),
        (ErrorCode.not_leader_or_follower, ProduceDecision.AGAIN),
        (ErrorCode.network_exception, ProduceDecision.AGAIN),
    ],
)
def test_what_becomes_of_a_batch_of_one_record(code, decision):
    assert decide(code, batch(), retries=5) is decision


def test_a_batch_that_is_too_large_is_split_while_it_can_be():
    assert decide(ErrorCode.message_too_large, batch(2), retries=0) is ProduceDecision.SPLIT
    assert decide(ErrorCode.message_too_large, batch(1), retries=9) is ProduceDecision.FAILED


def test_without_a_sequence_there_is_no_order_to_lose():
    for code in (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id):
        assert decide(code, batch(sequence=-1), retries=9) is ProduceDecision.FAILED


@pytest.mark.parametrize("code", [c for c in ErrorCode if c.retriable])
def test_after_the_last_retry_every_error_is_final(code):
    assert decide(code, batch(attempts=2), retries=3) is not ProduceDecision.FAILED
    assert decide(code, batch(attempts=3), retries=3) is ProduceDecision.FAILED
