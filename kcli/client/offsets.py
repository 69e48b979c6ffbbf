"""Offsets by time, and deletion of records: requests to each partition's leader.

list_offsets     ListOffsets (key 2), shared by the admin client and the consumer
list_at          the same at one leader, without retries
delete_records   DeleteRecords (key 21)
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import NamedTuple, TypeVar

from kcli.client.cluster import Cluster
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, LeaderEpoch, Offset, TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import EARLIEST_LOCAL, LATEST_TIERED, MAX_TIMESTAMP

T = TypeVar("T")


# First version of ListOffsets with each spec: KIP-734, KIP-405, KIP-1005.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ISOLATIONS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
"""By isolation.level."""


class ListedOffset(NamedTuple):
    """`offset` is -1 if no record matches; `timestamp` is -1 if the spec was not a time."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def missing_from_response() -> KafkaError:
    """Return the error of an item that is missing in a response."""
    return KafkaError(ErrorCode.unknown_server_error, "the broker left this out")


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, int],
    deadline: float,
    *,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """Return the offset of each spec: LATEST, EARLIEST, ..., or a time in epoch ms for the first
    record that is not older.
    """
    return await of_leaders(
        cluster,
        "listOffsets",
        specs,
        deadline,
        lambda leader, of: list_at(cluster, leader, of, isolation=isolation),
    )


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, Offset], deadline: float, timeout: timedelta
) -> dict[TopicPartition, Offset | KafkaError]:
    """Delete the records before these offsets (-1: all) and return the new log start offsets."""
    return await of_leaders(
        cluster,
        "deleteRecords",
        offsets,
        deadline,
        lambda leader, of: _delete(cluster, leader, of, timeout),
    )


async def of_leaders(
    cluster: Cluster,
    call: str,
    specs: Mapping[TopicPartition, int],
    deadline: float,
    ask: Callable[
        [BrokerId, Mapping[TopicPartition, int]], Awaitable[dict[TopicPartition, T | KafkaError]]
    ],
) -> dict[TopicPartition, T | KafkaError]:
    """Send a request to each leader about its partitions.

    A partition that does not exist is refused at once; one whose leader is moving is retried until
    the deadline.
    """
    results: dict[TopicPartition, T | KafkaError] = {}
    stale = {partition.topic for partition in specs}

    async def attempt() -> None:
        # Earlier results are kept: a retry concerns only the other partitions.
        pending = {p: spec for p, spec in specs.items() if p not in results}
        refusals = await cluster.refresh(sorted(stale & {p.topic for p in pending}))
        stale.clear()
        by_leader: dict[BrokerId, dict[TopicPartition, int]] = defaultdict(dict)
        last: Exception | None = None
        for partition, spec in pending.items():
            metadata = cluster.partition(partition)
            if partition.topic in refusals and not _is_final(refusals[partition.topic]):
                last = refusals[partition.topic]
            elif metadata is None:
                results[partition] = refusals.get(partition.topic) or KafkaError(
                    ErrorCode.unknown_topic_or_partition
                )
            elif metadata.leader is None:
                last = KafkaError(ErrorCode.leader_not_available)
            else:
                by_leader[metadata.leader][partition] = spec
        requests = [ask(leader, of) for leader, of in by_leader.items()]
        for leader, response in zip(
            by_leader, await asyncio.gather(*requests, return_exceptions=True), strict=True
        ):
            if isinstance(response, BaseException):
                if not isinstance(response, OSError):
                    raise response
                last = response
                stale.update(p.topic for p in by_leader[leader])
                continue
            for partition in by_leader[leader]:
                result = response.get(partition, missing_from_response())
                if isinstance(result, KafkaError) and result.code.retriable:
                    last = result
                    stale.add(partition.topic)
                else:
                    results[partition] = result
        if last is not None:
            stale.update(p.topic for p in specs if p not in results)
            raise last

    try:
        await cluster.retry(call, deadline, attempt)
    except KafkaError as error:
        return {p: results.get(p, error) for p in specs}
    return {p: results[p] for p in specs}


def _is_final(error: KafkaError) -> bool:
    """Whether retries would not help; an unknown topic counts as permanent too."""
    return not error.code.retriable or error.code == ErrorCode.unknown_topic_or_partition


async def list_at(
    cluster: Cluster,
    leader: BrokerId,
    specs: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """List offsets of one leader's partitions, without retries. Raises OSError if it does not
    respond.
    """
    peer = await cluster.peer(leader)
    version = peer.version(ApiKey.LIST_OFFSETS)
    new = versions.request(ApiKey.LIST_OFFSETS, version)
    results: dict[TopicPartition, ListedOffset | KafkaError] = {}
    topics: dict[str, list[object]] = defaultdict(list)
    for partition, spec in specs.items():
        # An older broker does not know this special timestamp.
        if version < _SINCE.get(spec, 0):
            results[partition] = KafkaError(
                ErrorCode.unsupported_version, f"{peer} cannot tell the offset for {spec}"
            )
            continue
        metadata = cluster.partition(partition)
        topics[partition.topic].append(
            new.topics.partitions(
                partition_index=partition.partition,
                current_leader_epoch=-1 if metadata is None else metadata.leader_epoch,
                timestamp=spec,
            )
        )
    if not topics:
        return results
    response = await peer.call(
        new(
            replica_id=-1,
            isolation_level=isolation,
            topics=[new.topics(name=name, partitions=of) for name, of in topics.items()],
        )
    )
    for topic in response.topics:
        for p in topic.partitions:
            results[TopicPartition(topic.name, p.partition_index)] = (
                KafkaError(p.error_code)
                if p.error_code != ErrorCode.none
                else ListedOffset(p.offset, p.timestamp, getattr(p, "leader_epoch", -1))
            )
    return results


async def _delete(
    cluster: Cluster, leader: BrokerId, offsets: Mapping[TopicPartition, Offset], timeout: timedelta
) -> dict[TopicPartition, Offset | KafkaError]:
    peer = await cluster.peer(leader)
    new = versions.request(ApiKey.DELETE_RECORDS, peer.version(ApiKey.DELETE_RECORDS))
    topics: dict[str, list[object]] = defaultdict(list)
    for (topic, partition), offset in offsets.items():
        topics[topic].append(new.topics.partitions(partition_index=partition, offset=offset))
    response = await peer.call(
        new(
            topics=[new.topics(name=name, partitions=of) for name, of in topics.items()],
            timeout=timeout,
        )
    )
    return {
        TopicPartition(topic.name, p.partition_index): p.low_watermark
        if p.error_code == ErrorCode.none
        else KafkaError(p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }
