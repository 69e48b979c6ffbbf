"""What the coordinator of a transactional id is asked, and what it answers.

    request           answer
    InitProducerId    Identity, or WANTS_ID
    AddPartitions     None
    VerifyPartitions  {partition: ErrorCode}
    EndTransaction    Identity to go on with, or WANTS_ID
    MarkersWritten    None

WANTS_ID: a new producer id is needed, and there is none in the request; ask again with one
(`new_id`).  They come from the controller, whom a shard does not reach.

Errors, as KafkaError: INVALID_PRODUCER_ID_MAPPING (the transactional id, or this producer id of it,
is not known), PRODUCER_FENCED (another epoch), CONCURRENT_TRANSACTIONS (markers are being written:
ask again), INVALID_TXN_STATE (there is nothing to end that way), INVALID_TRANSACTION_TIMEOUT.

Pure: values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kserver.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from kserver.txn.transaction import ProducerIdAndEpoch


class ProducerIdWanted(Enum):
    ID = "a new producer id"


WANTS_ID = ProducerIdWanted.ID


@dataclass(frozen=True, slots=True)
class InitProducerId:
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """What the producer has, when it goes on after an error (KIP-360)."""
    new_id: ProducerId = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """For a group's offsets: its partition of __consumer_offsets."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    version: int = 0
    """The producer's version of transactions: 2 where it leaves it to the broker to add (Produce
    v12, TxnOffsetCommit v5)."""


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Whether these are part of the transaction: NONE or TRANSACTION_ABORTABLE for each."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    version: int = 0
    """The producer's version of transactions: 2 from EndTxn v5 on."""
    new_id: ProducerId = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """To every partition of the transaction that was ended with this identity."""

    transactional_id: str
    producer: ProducerIdAndEpoch
