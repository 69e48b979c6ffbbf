"""Fetches from single replicas: Fetch (key 1) of a broker, leader or not.

The replica id is -2, that of Kafka's debugging consumer: any replica responds to it, up to the high
watermark that it knows.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kcli.client.cluster import Cluster
from kcli.client.consumer.fetcher import FETCH_BY_TOPIC_ID
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

DEBUGGING_CONSUMER = -2
# Before, only the leader responds (KIP-392).
FIRST_OF_REPLICAS = 11
FIRST_WITH_REPLICA_STATE = 15
MAX_BYTES = 50 << 20
"""Maximum size of one response, except for a single larger batch."""


class ReplicaFetch(NamedTuple):
    """A replica's batches from an offset on; offsets are -1 if not reported, as with an error."""

    records: bytes
    high_watermark: Offset = -1
    log_start: Offset = -1
    error: KafkaError | None = None


NOTHING = ReplicaFetch(b"")


async def fetch_replicas(
    cluster: Cluster,
    broker: BrokerId,
    offsets: Mapping[TopicPartition, Offset],
    *,
    partition_bytes: int,
    max_wait_ms: int,
    response_ms: int,
) -> dict[TopicPartition, ReplicaFetch]:
    """Fetch a broker's records of these partitions, each from its offset on. The broker waits for
    `max_wait_ms` for records, the client for at most `response_ms` for the response.

    The cluster knows the topics. Raises OSError, ProtocolError, or KafkaError for the whole
    request.
    """
    peer = await cluster.peer(broker, line="replicas", response_ms=response_ms)
    # A request has either ids or names, so with one id missing it has names.
    ids = {name: cluster.topics[name].id for name in {p.topic for p in offsets}}
    by_name = any(id is None for id in ids.values())
    version = peer.version(ApiKey.FETCH, FETCH_BY_TOPIC_ID - 1 if by_name else 1 << 15)
    if version < FIRST_OF_REPLICAS:
        raise KafkaError(ErrorCode.unsupported_version, f"{peer} answers for what it leads only")
    new = versions.request(ApiKey.FETCH, version)
    topics: dict[str, list[Any]] = defaultdict(list)
    for (name, number), offset in offsets.items():
        topics[name].append(
            new.topics.partitions(
                partition=number,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=partition_bytes,
            )
        )
    # A debugging consumer may fetch from followers too.
    who: dict[str, Any] = {"replica_id": DEBUGGING_CONSUMER}
    if version >= FIRST_WITH_REPLICA_STATE:
        state = new.replica_state(replica_id=DEBUGGING_CONSUMER, replica_epoch=-1)
        who = {"replica_state": state}
    response = await peer.call(
        new(
            **who,
            max_wait=datetime.timedelta(milliseconds=max_wait_ms),
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                new.topics(topic=name, topic_id=ids[name], partitions=of)
                for name, of in topics.items()
            ],
        )
    )
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code)
    names: dict[UUID | None, str] = {id: name for name, id in ids.items()}
    fetches = dict.fromkeys(offsets, NOTHING)
    for topic in response.responses:
        name = names.get(topic.topic_id, "") if version >= FETCH_BY_TOPIC_ID else topic.topic
        for p in topic.partitions:
            partition = TopicPartition(name, p.partition_index)
            if partition not in fetches:
                continue
            if p.error_code != ErrorCode.none:
                fetches[partition] = ReplicaFetch(b"", error=KafkaError(p.error_code))
            else:
                fetches[partition] = ReplicaFetch(
                    bytes(p.records or b""), p.high_watermark, p.log_start_offset
                )
    return fetches
