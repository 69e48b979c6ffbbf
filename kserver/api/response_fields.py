"""Parts of responses that several handlers share: authorized operations, state of a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.metadata import ClusterMetadata, PartitionInfo
from kserver.model import NO_BROKER, BrokerId, TopicPartition

NOT_REQUESTED = -(2**31)
"""Authorized operations that were not requested."""


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


# Numbers as in Kafka's AclOperation.  Without an authorizer, every client may do everything.
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
TOPIC_OPERATIONS = _bits(
    (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
)
CLUSTER_OPERATIONS = _bits(
    (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
)
GROUP_OPERATIONS = _bits((READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))


def state_of(
    topic: str,
    partition: PartitionInfo,
    image: ClusterMetadata,
    context: Context,
    lost: Collection[BrokerId] = (),
) -> dict[str, Any]:
    """Return the response fields for a partition's replicas and leader.

    A replica is offline if its broker is not registered, or if it is on this broker and its disk
    failed; then this broker is not its leader either, as with Apache's controller.  A leader in
    `lost`, whose process seems to be down, is reported as no leader: librdkafka retries after a
    second if the response names the dead leader, and after a tenth of that if it names none.
    """
    offline = [
        replica
        for replica in partition.replicas
        if replica not in image.brokers or replica in partition.offline
    ]
    own, leader, leader_epoch = context.parts.broker_id, partition.leader, partition.leader_epoch
    hosted = context.parts.replicas.partitions.get((topic, partition.partition))
    if hosted is not None and hosted.epoch > leader_epoch:
        # A broker receives LeaderAndIsr for its own partitions before UpdateMetadata for the
        # cluster.
        leader, leader_epoch = hosted.leader_id, hosted.epoch
    if own in partition.replicas and context.parts.replicas.is_offline(
        TopicPartition(topic, partition.partition)
    ):
        if own not in offline:
            offline.append(own)
        leader = NO_BROKER if leader == own else leader
    if leader in lost:
        leader = NO_BROKER
    is_led = leader != NO_BROKER
    return {
        "error_code": ErrorCode.none if is_led else ErrorCode.leader_not_available,
        "partition_index": partition.partition,
        "leader_id": leader,
        "leader_epoch": leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": offline,
    }


def fenced_code(code: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """Map PRODUCER_FENCED for clients before KIP-588, which know only INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
