"""DescribeProducers (key 61): v0.

Behaviour:
- Returns the producers known to a partition: idempotent and transactional ones that wrote to it
  within `producer.id.expiration.ms`, with the start of their open transaction, or -1.  Served by
  the leader.

Errors: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
KAFKA_STORAGE_ERROR.

Versions:
- v0 flexible (KIP-664)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context, Parts
from kserver.errors import KafkaError
from kserver.log.producer_state import ProducerStateEntry
from kserver.metadata import check_topic_name
from kserver.model import NO_EPOCH, ProducerId
from kserver.wire.versions import reply_to

KEY, VERSIONS = 61, range(0, 1)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    new = reply.topics
    return reply(
        topics=[
            new(
                name=topic.name,
                partitions=[
                    _partition(topic.name, index, context.parts, new.partitions)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(topic: str, index: int, parts: Parts, new: Any) -> Any:
    try:
        check_topic_name(topic)
        partition = parts.replicas.get(topic, index)
        partition.check_leader(NO_EPOCH)
    except KafkaError as error:
        return new(partition_index=index, error_code=error.code, error_message=error.message)
    producers = partition.log.producers.producers.items()
    return new(
        partition_index=index,
        active_producers=[
            _producer(id, producer, new.active_producers) for id, producer in producers
        ],
    )


def _producer(producer_id: ProducerId, producer: ProducerStateEntry, new: Any) -> Any:
    return new(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )
