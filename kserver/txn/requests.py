"""Requests to the coordinator of a transactional id, and responses.

    request           response
    InitProducerId    ProducerIdAndEpoch, or NEEDS_ID
    AddPartitions     None
    VerifyPartitions  {partition: ErrorCode}
    EndTransaction    ProducerIdAndEpoch for the next transaction, or NEEDS_ID
    MarkersWritten    None

NEEDS_ID means that a new producer id is needed, which the request lacks; it has to be repeated
with one (`new_id`).  The ids come from the controller, which a shard cannot call.

Errors, as KafkaError: INVALID_PRODUCER_ID_MAPPING (unknown transactional id, or not its producer
id), PRODUCER_FENCED (another epoch), CONCURRENT_TRANSACTIONS (markers are being written; retry),
INVALID_TXN_STATE (nothing to end that way), INVALID_TRANSACTION_TIMEOUT.

Pure: values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kserver.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from kserver.txn.transaction import ProducerIdAndEpoch


class ProducerIdNeeded(Enum):
    ID = "a new producer id"


NEEDS_ID = ProducerIdNeeded.ID


@dataclass(frozen=True, slots=True)
class InitProducerId:
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """Present id and epoch of a producer that continues after an error (KIP-360)."""
    new_id: ProducerId = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """For the offsets of a group, its partition of __consumer_offsets."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    version: int = 0
    """Transaction version of the producer; 2 if it relies on the broker to add partitions (Produce
    v12, TxnOffsetCommit v5)."""


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Check whether these are part of the transaction: NONE or TRANSACTION_ABORTABLE for each."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    version: int = 0
    """Transaction version of the producer; 2 from EndTxn v5 on."""
    new_id: ProducerId = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """All markers of the transaction that ended with this identity are written."""

    transactional_id: str
    producer: ProducerIdAndEpoch
