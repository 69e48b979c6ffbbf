"""Requests to reassign partitions: AlterPartitionReassignments (key 45) and
ListPartitionReassignments (key 46), both at the controller (KIP-455).
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kcli.client.admin.descriptions import Reassignment
from kcli.client.cluster import Cluster, To
from kcli.client.controller import forget_if_not_controller
from kcli.client.errors import refusal_of
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, TopicPartition
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

# First version of AlterPartitionReassignments that can refuse a change of the replication factor
# (KIP-860).
KEEP_REPLICATION_FACTOR = 1


async def list_ongoing(
    cluster: Cluster, partitions: Collection[TopicPartition] | None, timeout: datetime.timedelta
) -> dict[TopicPartition, Reassignment]:
    """Return ongoing reassignments, of `partitions` or of all; none if the broker cannot list
    them.
    """
    peer = await cluster.peer(To.CONTROLLER)
    if ApiKey.LIST_PARTITION_REASSIGNMENTS not in peer.versions:
        return {}
    version = peer.version(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    new = versions.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, version)
    topics = None
    if partitions is not None:
        topics = [
            new.topics(name=topic, partition_indexes=tuple(numbers))
            for topic, numbers in _by_topic(partitions).items()
        ]
    response = await peer.call(new(topics=topics, timeout=timeout))
    if (refusal := refusal_of(response)) is not None:
        raise forget_if_not_controller(cluster, refusal)
    return {
        TopicPartition(topic.name, p.partition_index): Reassignment(
            p.replicas, p.adding_replicas, p.removing_replicas
        )
        for topic in response.topics
        for p in topic.partitions
    }


class Change(NamedTuple):
    """New replicas of partitions; None cancels an ongoing reassignment."""

    targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    allow_replication_factor_change: bool
    timeout: datetime.timedelta

    async def ask(
        self, peer: Peer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Request the change of these partitions; an error of the whole request is that of each."""
        version = peer.version(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        if version < KEEP_REPLICATION_FACTOR and not self.allow_replication_factor_change:
            text = f"{peer} cannot enforce an unchanged replication factor"
            return dict.fromkeys(partitions, KafkaError(ErrorCode.unsupported_version, text))
        new = versions.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version)
        response = await peer.call(
            new(
                topics=[
                    new.topics(
                        name=topic,
                        partitions=[
                            new.topics.partitions(
                                partition_index=number,
                                replicas=self.targets[TopicPartition(topic, number)],
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in _by_topic(partitions).items()
                ],
                timeout=self.timeout,
                allow_replication_factor_change=self.allow_replication_factor_change,
            )
        )
        if (refusal := refusal_of(response)) is not None:
            return dict.fromkeys(partitions, refusal)
        return {
            TopicPartition(topic.name, p.partition_index): refusal_of(p)
            for topic in response.responses
            for p in topic.partitions
        }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    return topics
