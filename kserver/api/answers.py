"""What several handlers answer alike: authorized operations, partitions of a topic."""

from __future__ import annotations

from collections.abc import Iterable

from kserver.metadata import PartitionInfo

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


def offline_replicas(partition: PartitionInfo, alive: Iterable[int]) -> list[int]:
    """The replicas of a partition whose brokers are not there."""
    return [replica for replica in partition.replicas if replica not in alive]
