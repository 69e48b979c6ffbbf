"""Reading many partitions for one fetch: limits, isolation and throttling.

    limit                         rule
    a partition's max_bytes       holds, except for the first batch of the whole response (KIP-74)
    the response's max_bytes      the same; partitions beyond it are returned empty
    isolation                     up to the high watermark, or to the last stable offset
    a throttled follower          gets nothing above the rate (throttle.py), unless it is in sync

A consumer that sends its rack may be redirected to a replica there (selector.py), which serves it
as the leader does, up to the high watermark that it knows.

Reads return file ranges, not bytes.  If finding the range would wait for the disk, `read` stops and
names the log; `read_cold` reads those pages into memory in a thread, and tries again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.log.log import COLD, Cold, Log, Slice
from kserver.log.transaction_index import AbortedTransaction
from kserver.metrics.meters import TopicMeters
from kserver.model import NO_BROKER, NO_EPOCH, BrokerId, Offset
from kserver.replica.fetch_session import FetchPartition
from kserver.replica.manager import ReplicaManager
from kserver.replica.partition import Partition
from kserver.replica.truncation import DivergingEpoch, divergence
from kserver.world.disk import FileRange


class Read(NamedTuple):
    """One partition's part of a fetch response; `size` bytes of `data`, if any."""

    fetch_info: FetchPartition
    error: ErrorCode = ErrorCode.none
    high_watermark: Offset = -1
    last_stable_offset: Offset = -1
    log_start_offset: Offset = -1
    data: FileRange | None = None
    size: int = 0
    aborted: Sequence[AbortedTransaction] | None = ()
    """None if not requested: the client reads uncommitted records too."""
    diverging: DivergingEpoch | None = None
    """Where the client's log diverges from this one (KIP-595)."""
    meters: TopicMeters | None = None
    """Meters of its topic; None if the partition is not hosted here."""
    is_at_end: bool = False
    """Whether there is no more to read."""
    preferred: BrokerId = NO_BROKER
    """Replica that the client should read from instead (KIP-392)."""


class FetchLimits(NamedTuple):
    max_bytes: int
    read_committed: bool
    follower: BrokerId = NO_BROKER
    """Broker id of the fetching follower, which also reads uncommitted records."""
    leader_only: bool = False
    """Whether to read from leaders only: the client does not support reading from followers
    (KIP-392)."""
    rack: str = ""
    listener: str = ""
    """Listener that the consumer is connected to; a preferred replica must have it."""

    @property
    def is_follower(self) -> bool:
        return self.follower != NO_BROKER


class NotInMemory(NamedTuple):
    """Result of a read that would have to wait for the disk, with its arguments."""

    log: Log
    offset: Offset
    max_bytes: int
    up_to: Offset


def read(
    replicas: ReplicaManager, fetch_infos: Sequence[FetchPartition], limits: FetchLimits
) -> list[Read] | NotInMemory:
    """Read all wanted partitions, in order, without waiting for the disk."""
    partitions = replicas.partitions
    is_follower = limits.is_follower
    leader_only = is_follower or limits.leader_only
    selects = limits.rack != "" and not is_follower and replicas.selects_replicas
    remaining = limits.max_bytes
    at_least_one = True
    reads = []
    for fetch_info in fetch_infos:
        try:
            partition = partitions.get((fetch_info.topic, fetch_info.partition))
            if partition is None:
                partition = _missing(replicas, fetch_info)
            if fetch_info.topic_id is not None and fetch_info.topic_id != partition.topic_id:
                raise KafkaError(ErrorCode.inconsistent_topic_id)
            # Any negative epoch means none, as in Kafka (FetchRequest.optionalEpoch).
            epoch = max(fetch_info.current_leader_epoch, NO_EPOCH)
            if leader_only:
                partition.check_leader(epoch)
            else:
                partition.check_replica(epoch)
            log = partition.log
            if selects:
                preferred = replicas.preferred(
                    partition, fetch_info.offset, limits.rack, limits.listener
                )
                if preferred != NO_BROKER:
                    reads.append(_redirect(fetch_info, partition, preferred, limits))
                    continue
            diverging = None
            if fetch_info.last_fetched_epoch >= 0:
                epoch = fetch_info.last_fetched_epoch
                diverging = divergence(log.end_offset_for_epoch(epoch), epoch, fetch_info.offset)
            if is_follower:
                up_to = log.log_end_offset
            else:
                up_to = log.last_stable_offset if limits.read_committed else log.high_watermark
            result: Slice | Cold | None = None
            # Throttled replicas get an empty response, and so do partitions after the response is
            # full.
            held_back = is_follower and replicas.holds_back(partition, limits.follower)
            if diverging is None and not held_back and (remaining > 0 or at_least_one):
                max_bytes = fetch_info.max_bytes if fetch_info.max_bytes < remaining else remaining
                result = log.read(
                    fetch_info.offset, max_bytes, up_to=up_to, at_least_one=at_least_one
                )
                if result is COLD:
                    return NotInMemory(log, fetch_info.offset, max_bytes, up_to)
            data, size = None, 0
            aborted: Sequence[AbortedTransaction] | None = () if limits.read_committed else None
            if isinstance(result, Slice) and result.size:
                data, size = result.data, result.size
                at_least_one = False
                remaining -= size
                if limits.read_committed:
                    aborted = _aborted(log, fetch_info.offset, result.upper_bound)
            reads.append(
                Read(
                    fetch_info,
                    ErrorCode.none,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    data,
                    size,
                    aborted,
                    diverging,
                    partition.meters,
                    fetch_info.offset >= up_to and diverging is None,
                )
            )
        except KafkaError as error:
            reads.append(_refusal(replicas, fetch_info, error.code, limits))
        except StorageError:
            reads.append(_refusal(replicas, fetch_info, ErrorCode.kafka_storage_error, limits))
    return reads


def _aborted(log: Log, first: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
    try:
        return log.aborted(first, upper_bound)
    except OSError as error:
        raise log.failed(error, may_repeat=True) from error


async def read_cold(
    replicas: ReplicaManager,
    fetch_infos: Sequence[FetchPartition],
    limits: FetchLimits,
    cold: NotInMemory,
) -> list[Read]:
    """Return the result of `read`, after waiting for the disk as often as needed."""
    while True:
        # If the disk fails, the next read returns the error.
        with contextlib.suppress(StorageError):
            await cold.log.read_cold(
                cold.offset, cold.max_bytes, up_to=cold.up_to, at_least_one=True
            )
        reads = read(replicas, fetch_infos, limits)
        if not isinstance(reads, NotInMemory):
            return reads
        cold = reads


def _redirect(
    fetch_info: FetchPartition, partition: Partition, preferred: BrokerId, limits: FetchLimits
) -> Read:
    log = partition.log
    return Read(
        fetch_info,
        ErrorCode.none,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted=() if limits.read_committed else None,
        meters=partition.meters,
        preferred=preferred,
    )


def _missing(replicas: ReplicaManager, fetch_info: FetchPartition) -> Partition:
    if fetch_info.topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    return replicas.get(fetch_info.topic, fetch_info.partition)


def _refusal(
    replicas: ReplicaManager, fetch_info: FetchPartition, code: ErrorCode, limits: FetchLimits
) -> Read:
    partition = replicas.partitions.get((fetch_info.topic or "", fetch_info.partition))
    if partition is None:
        return Read(fetch_info, code)
    aborted = () if limits.read_committed else None
    return Read(fetch_info, code, aborted=aborted, meters=partition.meters)
