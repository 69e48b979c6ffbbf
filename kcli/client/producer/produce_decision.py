"""Decides on a batch after the broker's response, or after a lost connection.

Pure: values in, a decision out (Kafka: Sender.completeBatch and canRetry, ProduceResponse).

    none, DUPLICATE_SEQUENCE_NUMBER              delivered: by this attempt, or by an earlier one
    MESSAGE_TOO_LARGE                            split in two, if it has more than one record
    OUT_OF_ORDER_SEQUENCE_NUMBER                 retry; in a new epoch if no older one is pending
    UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH  retry in a new epoch; in a transaction it fails
    any retriable code, a lost connection        retry
    any other, or `retries` used up              its records fail
"""

from __future__ import annotations

import enum

from kcli.client.producer.partition_queue import ProducerBatch
from kserver.errors import ErrorCode

# After these the batch may have been appended all the same. A lost connection counts as
# NETWORK_EXCEPTION.
MAYBE_APPENDED = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
    }
)
# After these the metadata is out of date.
NOT_LEADER = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
    }
)
_PRODUCER_UNKNOWN = frozenset({ErrorCode.unknown_producer_id, ErrorCode.invalid_producer_epoch})


class ProduceDecision(enum.Enum):
    DELIVERED = enum.auto()
    SPLIT = enum.auto()
    AGAIN = enum.auto()
    OUT_OF_ORDER = enum.auto()
    NEW_EPOCH = enum.auto()
    FAILED = enum.auto()


def decide(
    error: ErrorCode, batch: ProducerBatch, *, retries: int, transactional: bool = False
) -> ProduceDecision:
    """Return the decision; `retries` is how often a batch may be retried."""
    if error in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
        return ProduceDecision.DELIVERED
    if error == ErrorCode.message_too_large and len(batch.records) > 1:
        return ProduceDecision.SPLIT
    if batch.attempts >= retries:
        return ProduceDecision.FAILED
    if batch.base_sequence >= 0:
        if error == ErrorCode.out_of_order_sequence_number:
            return ProduceDecision.OUT_OF_ORDER
        if error in _PRODUCER_UNKNOWN and not transactional:
            return ProduceDecision.NEW_EPOCH
    return ProduceDecision.AGAIN if error.retriable else ProduceDecision.FAILED
