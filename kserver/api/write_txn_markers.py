"""WriteTxnMarkers (key 27): v1-v2.

Behaviour:
- Appends the end of a transaction to each named partition, and responds once it is committed.  For
  a partition of __consumer_offsets, the group coordinator applies it at once.
- Sent by the transaction coordinators, and by `kafka-transactions.sh abort`.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
INVALID_PRODUCER_EPOCH (the partition knows a later one), TRANSACTION_COORDINATOR_FENCED,
KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT.

Versions:
- v1 flexible; v2 the transaction version: from 2 on, a marker does not end a transaction that began
  under the marker's own epoch
"""

from __future__ import annotations

import asyncio
from typing import Any

from kserver.api.context import Context, Parts
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.txn.markers import Marker
from kserver.txn.transaction import ProducerIdAndEpoch
from kserver.wire.versions import reply_to

KEY, VERSIONS = 27, range(1, 3)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    # Append all before waiting for any.
    written = [(marker, _write(marker, context.parts)) for marker in request.markers]
    new = reply.markers
    return reply(
        markers=[
            new(
                producer_id=marker.producer_id,
                topics=[
                    new.topics(
                        name=topic.name,
                        partitions=[
                            new.topics.partitions(
                                partition_index=index,
                                error_code=await codes[TopicPartition(topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, codes in written
        ]
    )


def _write(marker: Any, parts: Parts) -> dict[TopicPartition, asyncio.Future[ErrorCode]]:
    end = Marker(
        ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch),
        marker.transaction_result,
        marker.coordinator_epoch,
        getattr(marker, "transaction_version", 0),
    )
    codes = {}
    for topic in marker.topics:
        for index in topic.partition_indexes:
            key = TopicPartition(topic.name, index)
            code: asyncio.Future[ErrorCode] = parts.loop.create_future()
            codes[key] = code
            parts.marker_log.write(end, key, code.set_result)
    return codes
