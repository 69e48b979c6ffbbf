"""Timestamps of records: reads one record of each partition from its leader.

The protocol has the offset of a time (ListOffsets) but not the time of an offset, so the batch that
contains it is fetched.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kcli.client.cluster import Cluster
from kcli.client.consumer.completed_fetch import CompletedFetch
from kcli.client.offsets import READ_UNCOMMITTED, of_leaders
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

# Last version of Fetch with topic names instead of ids.
BY_NAME = 12
# Most batches are smaller. A larger one is returned only if it is the first of the response.
BATCH_BYTES = 64 << 10
RESPONSE_BYTES = 16 << 20
NO_SESSION_EPOCH = -1


async def record_times(
    cluster: Cluster, offsets: Mapping[TopicPartition, Offset], deadline: float
) -> dict[TopicPartition, int | KafkaError | None]:
    """Return ms since 1970 of the first record at or after each offset; None if there is none or it
    has no timestamp.
    """
    return await of_leaders(
        cluster,
        "fetch",
        offsets,
        deadline,
        lambda leader, of: _of_leader(cluster, leader, of),
    )


async def _of_leader(
    cluster: Cluster, leader: BrokerId, offsets: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, int | KafkaError | None]:
    results: dict[TopicPartition, int | KafkaError | None] = {}
    pending = dict(offsets)
    while pending:
        times = await _fetch(cluster, leader, pending)
        if not times:
            break
        results |= times
        for partition in times:
            pending.pop(partition, None)
    return results | dict.fromkeys(pending)


async def _fetch(
    cluster: Cluster, leader: BrokerId, offsets: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, int | KafkaError | None]:
    """Return the times of the partitions for which the broker returned records or an error."""
    peer = await cluster.peer(leader)
    new = versions.request(ApiKey.FETCH, peer.version(ApiKey.FETCH, BY_NAME))
    topics: dict[str, list[Any]] = defaultdict(list)
    for (name, number), offset in offsets.items():
        topics[name].append(
            new.topics.partitions(
                partition=number,
                current_leader_epoch=-1,
                fetch_offset=offset,
                partition_max_bytes=BATCH_BYTES,
            )
        )
    response = await peer.call(
        new(
            replica_id=-1,
            max_wait=datetime.timedelta(0),
            min_bytes=0,
            max_bytes=RESPONSE_BYTES,
            isolation_level=READ_UNCOMMITTED,
            session_epoch=NO_SESSION_EPOCH,
            topics=[new.topics(topic=name, partitions=of) for name, of in topics.items()],
        )
    )
    if (code := getattr(response, "error_code", ErrorCode.none)) != ErrorCode.none:
        raise KafkaError(code)
    results: dict[TopicPartition, int | KafkaError | None] = {}
    for topic in response.responses:
        for p in topic.partitions:
            partition = TopicPartition(topic.topic, p.partition_index)
            if partition not in offsets:
                continue
            if p.error_code == ErrorCode.offset_out_of_range:
                results[partition] = None
            elif p.error_code != ErrorCode.none:
                results[partition] = KafkaError(p.error_code)
            elif p.records:
                results[partition] = _first_time(partition, offsets[partition], p.records)
    return results


def _first_time(partition: TopicPartition, offset: Offset, data: bytes) -> int | None:
    batch = CompletedFetch(partition, offset, data).take(1)
    if batch is None or batch.rows[0][1] < 0:
        return None
    return batch.rows[0][1]
