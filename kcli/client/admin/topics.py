"""Requests and responses about topics: Metadata (key 3), CreateTopics (19), CreatePartitions (37)
and DescribeTopicPartitions (75).
"""

from __future__ import annotations

from typing import Any

from kcli.client.admin import configs
from kcli.client.admin.descriptions import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey


async def describe_in_pages(
    peer: Peer, names: list[str], page_size: int
) -> dict[str, TopicDescription | KafkaError]:
    """Describe topics in pages (KIP-966): a topic may continue on the next page, from the
    cursor.
    """
    new = versions.request(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, peer.version(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    )
    descriptions: dict[str, TopicDescription | KafkaError] = {}
    rest, cursor = sorted(names), None
    while rest:
        response = await peer.call(
            new(
                topics=[new.topics(name=name) for name in rest],
                response_partition_limit=page_size,
                cursor=cursor,
            )
        )
        for topic in response.topics:
            page = description_or_error(topic)
            before = descriptions.get(topic.name)
            if isinstance(before, TopicDescription) and isinstance(page, TopicDescription):
                both = before.partitions + page.partitions
                page = TopicDescription(page.name, page.id, page.is_internal, both)
            descriptions[topic.name] = page
        if response.next_cursor is None:
            break
        at = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        if cursor is not None and at <= (cursor.topic_name, cursor.partition_index):
            raise KafkaError(ErrorCode.invalid_request, f"{peer} sends the same page again")
        cursor = new.cursor(topic_name=at[0], partition_index=at[1])
        rest = [name for name in rest if name >= at[0]]
    return descriptions


def description_or_error(topic: Any) -> TopicDescription | KafkaError:
    if topic.error_code != ErrorCode.none:
        return KafkaError(topic.error_code)
    return TopicDescription(
        topic.name,
        getattr(topic, "topic_id", None),
        getattr(topic, "is_internal", False),
        tuple(
            PartitionDescription(
                p.partition_index,
                p.leader_id if p.leader_id >= 0 else None,
                p.replica_nodes,
                p.isr_nodes,
                getattr(p, "eligible_leader_replicas", None),
                getattr(p, "last_known_elr", None),
                getattr(p, "leader_epoch", -1),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        ),
    )


def new_topic(new: Any, topic: NewTopic) -> Any:
    manual = topic.assignments or {}
    return new.topics(
        name=topic.name,
        num_partitions=-1 if manual else topic.partitions,
        replication_factor=-1 if manual else topic.replication_factor,
        assignments=[
            new.topics.assignments(partition_index=partition, broker_ids=tuple(replicas))
            for partition, replicas in manual.items()
        ],
        configs=[new.topics.configs(name=k, value=v) for k, v in topic.config.items()],
    )


def more_partitions(new: Any, name: str, topic: NewPartitions) -> Any:
    manual = topic.assignments
    return new.topics(
        name=name,
        count=topic.count,
        assignments=None
        if manual is None
        else [new.topics.assignments(broker_ids=tuple(replicas)) for replicas in manual],
    )


def created_topic(topic: Any) -> CreatedTopic:
    """Return the topic of a CreateTopics response, with its configuration in newer versions."""
    entries = getattr(topic, "configs", None)
    return CreatedTopic(
        topic.name,
        getattr(topic, "topic_id", None),
        getattr(topic, "num_partitions", -1),
        getattr(topic, "replication_factor", -1),
        None if entries is None else tuple(configs.entry_of(entry) for entry in entries),
    )
