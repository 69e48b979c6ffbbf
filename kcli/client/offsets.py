"""Offsets by time: ListOffsets (key 2), each partition asked at its leader.

Shared by the admin client and the consumer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from kcli.client.cluster import Cluster
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, LeaderEpoch, Offset, TopicPartition
from kserver.wire import versions

LIST_OFFSETS = 2

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

# The first version that knows a spec: KIP-734, KIP-405, KIP-1005.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class ListedOffset(NamedTuple):
    """`offset` is -1 where no record matches; `timestamp` -1 where none was asked for."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def left_out() -> KafkaError:
    """The refusal of an item that an answer should have told of."""
    return KafkaError(ErrorCode.unknown_server_error, "the broker left this out")


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, int],
    deadline: float,
    *,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """The offset that each spec stands for: LATEST, EARLIEST, ..., or a time in epoch ms, which
    stands for the first record that is not older.

    A partition that does not exist is refused at once; one whose leader is moving is tried until
    the deadline.
    """
    found: dict[TopicPartition, ListedOffset | KafkaError] = {}
    stale = {partition.topic for partition in specs}

    async def attempt() -> None:
        pending = {p: spec for p, spec in specs.items() if p not in found}
        refused = await cluster.refresh(sorted(stale & {p.topic for p in pending}))
        stale.clear()
        by_leader: dict[BrokerId, dict[TopicPartition, int]] = defaultdict(dict)
        last: Exception | None = None
        for partition, spec in pending.items():
            known = cluster.partition(partition)
            if partition.topic in refused and not _settles(refused[partition.topic]):
                last = refused[partition.topic]
            elif known is None:
                found[partition] = refused.get(partition.topic) or KafkaError(
                    ErrorCode.unknown_topic_or_partition
                )
            elif known.leader is None:
                last = KafkaError(ErrorCode.leader_not_available)
            else:
                by_leader[known.leader][partition] = spec
        asked = [_ask(cluster, leader, of, isolation) for leader, of in by_leader.items()]
        for leader, answer in zip(
            by_leader, await asyncio.gather(*asked, return_exceptions=True), strict=True
        ):
            if isinstance(answer, BaseException):
                if not isinstance(answer, OSError):
                    raise answer
                last = answer
                stale.update(p.topic for p in by_leader[leader])
                continue
            for partition in by_leader[leader]:
                result = answer.get(partition) or left_out()
                if isinstance(result, KafkaError) and result.code.retriable:
                    last = result
                    stale.add(partition.topic)
                else:
                    found[partition] = result
        if last is not None:
            stale.update(p.topic for p in specs if p not in found)
            raise last

    try:
        await cluster.retry("listOffsets", deadline, attempt)
    except KafkaError as error:
        return {p: found.get(p, error) for p in specs}
    return {p: found[p] for p in specs}


def _settles(error: KafkaError) -> bool:
    """Whether asking again would not help: also an unknown topic stays unknown."""
    return not error.code.retriable or error.code == ErrorCode.unknown_topic_or_partition


async def _ask(
    cluster: Cluster, leader: BrokerId, specs: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    peer = await cluster.peer(leader)
    version = peer.version(LIST_OFFSETS)
    new = versions.request(LIST_OFFSETS, version)
    found: dict[TopicPartition, ListedOffset | KafkaError] = {}
    topics: dict[str, list[object]] = defaultdict(list)
    for partition, spec in specs.items():
        if version < _SINCE.get(spec, 0):
            found[partition] = KafkaError(
                ErrorCode.unsupported_version, f"{peer} cannot tell the offset for {spec}"
            )
            continue
        known = cluster.partition(partition)
        topics[partition.topic].append(
            new.topics.partitions(
                partition_index=partition.partition,
                current_leader_epoch=-1 if known is None else known.leader_epoch,
                timestamp=spec,
            )
        )
    if not topics:
        return found
    answer = await peer.call(
        new(
            replica_id=-1,
            isolation_level=isolation,
            topics=[new.topics(name=name, partitions=of) for name, of in topics.items()],
        )
    )
    for topic in answer.topics:
        for p in topic.partitions:
            found[TopicPartition(topic.name, p.partition_index)] = (
                KafkaError(p.error_code)
                if p.error_code != ErrorCode.none
                else ListedOffset(p.offset, p.timestamp, getattr(p, "leader_epoch", -1))
            )
    return found
