"""What several handlers answer alike: authorized operations, partitions of a topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.metadata import ClusterMetadata, PartitionInfo
from kserver.model import NO_BROKER, BrokerId, TopicPartition

NOT_ASKED = -(2**31)
"""Authorized operations that were not asked for."""


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


# Numbers as in Kafka's AclOperation.  Without an authorizer everybody may do all there is to do.
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
    """The fields that tell where a partition is, and who leads it.

    A replica is offline where its broker is not there, or where it is this one and its disk failed:
    then it does not lead either, as Apache's controller has it.  Nobody leads for a moment either
    where the leader's process seems to be gone (`lost`): librdkafka, told of the dead one, asks
    again a second later only, and told of none a tenth of that.
    """
    offline = [
        replica
        for replica in partition.replicas
        if replica not in image.brokers or replica in partition.offline
    ]
    own, leader, leader_epoch = context.parts.broker_id, partition.leader, partition.leader_epoch
    hosted = context.parts.replicas.partitions.get((topic, partition.partition))
    if hosted is not None and hosted.epoch > leader_epoch:
        # Of what it hosts a broker is told first, and of the cluster next.
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


def fenced_as(code: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """Clients of before KIP-588 know no PRODUCER_FENCED: to them it is what it was before."""
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
