"""Verification of a Produce request's transactional batches, before they are appended.

The first batch of a transaction to a partition is appended once the coordinator confirms that the
partition is part of it (txn/verification, KIP-890); from v12 on that adds the partition.  A request
that waits for this is appended in its turn: later requests of the same producer wait meanwhile.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kserver.api.context import Parts
from kserver.api.produce_bytes import ProduceRequest
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from kserver.txn.transaction import ProducerIdAndEpoch
from kserver.txn.verification import PartitionErrors, Turn

FIRST_WITH_ABORTABLE = 11
FIRST_TO_ADD = 12
TRANSACTIONAL_BIT = 0x10
ATTRIBUTES_AT = 22
"""Position of the one of a batch's two attribute bytes that holds flags."""
PRODUCER_AT = 43
"""Position of a batch's producer id and epoch, which its base sequence follows."""

_PRODUCER = struct.Struct(">qh")


class NewPartitions(NamedTuple):
    """Partitions of a request that begin, or may begin, a producer's part of a transaction."""

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    others: PartitionErrors
    """Errors of partitions with another producer's batches, which cannot be in its transaction."""


def verify_now(request: ProduceRequest, version: int, parts: Parts) -> PartitionErrors | Turn:
    """Return the errors of partitions that must not be appended; or a turn if the request has to
    wait for the coordinator, or for an earlier request of its producer."""
    new = _new_partitions(request, version, parts)
    producer_id = _producer_id(request) if new is None else new.producer.producer_id
    # Requests that waited for an earlier verification may still be waiting for their turn.
    if not parts.verification.has_turn(producer_id):
        if new is None:
            return {}
        errors = parts.verification.verify_now(*_arguments(request, version, new))
        if errors is not None:
            return {**errors, **new.others}
    return parts.verification.turn(producer_id)


async def verify(request: ProduceRequest, version: int, parts: Parts) -> PartitionErrors:
    """Ask the coordinator, and return the errors of partitions that must not be appended."""
    new = _new_partitions(request, version, parts)
    if new is None:
        return {}
    errors = await parts.verification.verify(*_arguments(request, version, new))
    return {**errors, **new.others}


def _producer_id(request: ProduceRequest) -> ProducerId:
    """Return the producer id of the first batch, or NO_PRODUCER_ID without one."""
    for _, _, batches in request[3]:
        for _, records in batches:
            if len(records) >= PRODUCER_AT + _PRODUCER.size:
                id: ProducerId
                id, _ = _PRODUCER.unpack_from(records, PRODUCER_AT)
                return id
    return NO_PRODUCER_ID


def _arguments(
    request: ProduceRequest, version: int, new: NewPartitions
) -> tuple[str, ProducerIdAndEpoch, frozenset[TopicPartition], bool, bool]:
    _, _, transactional_id, _ = request
    assert transactional_id is not None
    adds, is_abortable = version >= FIRST_TO_ADD, version >= FIRST_WITH_ABORTABLE
    return transactional_id, new.producer, new.partitions, adds, is_abortable


def _new_partitions(request: ProduceRequest, version: int, parts: Parts) -> NewPartitions | None:
    """Return the partitions to verify, or None if the coordinator need not be asked."""
    if version < FIRST_TO_ADD and not parts.config().transaction_partition_verification_enable:
        return None
    partitions = []
    producer: ProducerIdAndEpoch | None = None
    others: dict[TopicPartition, KafkaError] = {}
    _, _, _, topics = request
    for name, _, batches in topics:
        for index, records in batches:
            partition = parts.replicas.partitions.get((name, index))
            if partition is None or len(records) < PRODUCER_AT + _PRODUCER.size:
                continue
            if not records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
                continue
            id, epoch = _PRODUCER.unpack_from(records, PRODUCER_AT)
            if partition.open_epoch(id) != epoch:
                producer = producer or ProducerIdAndEpoch(id, epoch)
                if producer == (id, epoch):
                    partitions.append(partition.topic_partition)
                else:
                    others[partition.topic_partition] = _second_producer(id)
    return None if producer is None else NewPartitions(producer, frozenset(partitions), others)


def _second_producer(id: ProducerId) -> KafkaError:
    text = f"producer {id} is not the only one with transactional records in the request"
    return KafkaError(ErrorCode.invalid_producer_id_mapping, text)
