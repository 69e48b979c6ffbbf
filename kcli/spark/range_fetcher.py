"""Fetches a task's ranges of offsets from the leaders of their partitions.

The next response is requested while the last one is decoded. A leader that moves is followed.
Records that no longer exist raise DataLost, or are skipped if failOnDataLoss is false.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

import pyarrow as pa

from kcli.client.blocking import Blocking
from kcli.client.cluster import Cluster
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.fetch_session import FINAL_EPOCH
from kcli.client.consumer.fetcher import FETCH_BY_TOPIC_ID
from kcli.client.offsets import ISOLATIONS, READ_COMMITTED, list_offsets
from kcli.spark.batch_decoder import AbortedRange, arrow_batches, visible
from kcli.spark.logs import GONE_AFTER_S
from kcli.spark.offset_ranges import DataLost, KafkaOffsetRange
from kcli.spark.options import ReadOptions
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import Offset
from kserver.peer import ANY_VERSION
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import RecordBatch, batches
from kserver.wire.special_offsets import EARLIEST

FETCH_BYTES = 4 << 20
"""Bytes of one fetch unless kafka.max.partition.fetch.bytes is set."""
_NO_SESSION = 0
_LARGEST_BATCH_BYTES = 1 << 27
"""A response holds at least one batch, however large: it may exceed the requested size by this."""
_GONE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)

_logger = logging.getLogger(__name__)


def read_ranges(
    options: ReadOptions, ranges: Sequence[KafkaOffsetRange], columns: Sequence[str]
) -> Iterator[tuple[KafkaOffsetRange, pa.RecordBatch]]:
    """Yield the records of the ranges, with these columns."""
    with Blocking(Fetch, options, ranges) as fetch:
        while (result := fetch.next()) is not None:
            shown = visible(
                result.batches, result.range.partition, result.aborted, check_crcs=fetch.check_crcs
            )
            for batch in arrow_batches(
                shown, result.range.partition, result.start, result.range.end, columns
            ):
                yield result.range, batch


class Fetched(NamedTuple):
    """The batches of one response in order. The wanted records begin at `start`, within the first
    batch; the last batch may exceed the range.
    """

    range: KafkaOffsetRange
    start: Offset
    batches: list[RecordBatch]
    aborted: list[AbortedRange]


class Fetch:
    """Fetches ranges, one after another.  Open while the `async with` lasts."""

    def __init__(self, options: ReadOptions, ranges: Sequence[KafkaOffsetRange]) -> None:
        config = ConsumerConfig.resolve(options.client)
        is_set = config.is_set("max_partition_fetch_bytes")
        max_bytes = config.max_partition_fetch_bytes if is_set else FETCH_BYTES
        self._cluster = Cluster(config, max_response_bytes=max_bytes + _LARGEST_BATCH_BYTES)
        self._fetches = deque(
            RangeFetch(self._cluster, config, part, max_bytes, fails=options.fail_on_data_loss)
            for part in ranges
        )
        self._ahead: asyncio.Task[Fetched | None] | None = None
        self.check_crcs = config.check_crcs

    async def __aenter__(self) -> Self:
        self._ahead = asyncio.create_task(self._fetch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            # Ignore its error: its result is not needed any more.
            await asyncio.gather(self._ahead, return_exceptions=True)
        await self._cluster.close()

    async def next(self) -> Fetched | None:
        """Return the next response, while one more is requested; None at the end of the last range.

        Raises DataLost, KafkaError, ProtocolError, ClusterUnreachable or TimedOut
        (default.api.timeout.ms without any progress).
        """
        assert self._ahead is not None
        result = await self._ahead
        if result is not None:
            self._ahead = asyncio.create_task(self._fetch())
        return result

    async def _fetch(self) -> Fetched | None:
        while self._fetches:
            if (result := await self._fetches[0].fetch()) is not None:
                return result
            self._fetches.popleft()
        return None


class RangeFetch:
    """Fetches one range."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        offset_range: KafkaOffsetRange,
        max_bytes: int,
        *,
        fails: bool,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._range = offset_range
        self._max_bytes = max_bytes
        self._fails = fails
        self._isolation = ISOLATIONS[config.isolation_level]
        self._position: Offset = offset_range.start
        self._stale = False
        self._unknown_since_s: float | None = None

    async def fetch(self) -> Fetched | None:
        """Return the next response, or None at the end."""
        deadline = self._cluster.deadline(self._config.default_api_timeout_ms)
        try:
            return await self._cluster.retry("fetch", deadline, self._attempt)
        except KafkaError as error:
            # After the deadline: the log ends before the range does.
            if error.code != ErrorCode.offset_not_available:
                raise
            return self._lost(str(error))

    def _unknown(self) -> Fetched | None:
        """Handle a broker's error that the partition is unknown: retry for GONE_AFTER_S."""
        partition, now = self._range.partition, asyncio.get_running_loop().time()
        self._unknown_since_s = self._unknown_since_s or now
        if now - self._unknown_since_s > GONE_AFTER_S:
            return self._lost(f"partition {partition} was deleted")
        self._stale = True
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{partition}")

    def _lost(self, what: str) -> Fetched | None:
        """End the range after data loss. Raises DataLost unless failOnDataLoss is false."""
        if self._fails:
            raise DataLost(what)
        _logger.warning("%s: skipping these records", what)
        self._position = self._range.end
        return None

    async def _attempt(self) -> Fetched | None:
        """Fetch once; return None at the end. A retriable KafkaError or OSError is to be
        retried.
        """
        partition, offset_range = self._range.partition, self._range
        if self._position >= offset_range.end:
            return None
        if self._stale or self._cluster.partition(partition) is None:
            refused = await self._cluster.refresh([partition.topic])
            self._stale = False
            error = refused.get(partition.topic)
            if error is not None and error.code != ErrorCode.unknown_topic_or_partition:
                self._stale = True
                raise error
            if error is not None or self._cluster.partition(partition) is None:
                return self._unknown()
        topic = self._cluster.topics[partition.topic]
        if offset_range.topic_id is not None and topic.id != offset_range.topic_id:
            return self._lost(f"topic {partition.topic} was deleted and created again")
        metadata = self._cluster.partition(partition)
        assert metadata is not None
        if metadata.leader is None:
            self._stale = True
            raise KafkaError(ErrorCode.leader_not_available, f"{partition} has no leader")
        # The leader may have moved, unless a response arrives.
        self._stale = True
        p = await self._ask(metadata.leader, metadata.leader_epoch, topic.id)
        if p.error_code == ErrorCode.offset_out_of_range:
            return await self._out_of_range()
        if p.error_code != ErrorCode.none:
            if p.error_code in _GONE:
                # A metadata refresh decides whether it is unknown.
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{partition}")
            raise KafkaError(p.error_code, f"fetching {partition}")
        self._stale, self._unknown_since_s = False, None
        return self._accept(p)

    async def _ask(self, leader: int, leader_epoch: int, topic_id: UUID | None) -> Any:
        """Fetch from the leader and return the partition's response."""
        name, number = self._range.partition
        peer = await self._cluster.peer(leader)
        version = peer.version(
            ApiKey.FETCH, FETCH_BY_TOPIC_ID - 1 if topic_id is None else ANY_VERSION
        )
        new = versions.request(ApiKey.FETCH, version)
        partition = new.topics.partitions(
            partition=number,
            current_leader_epoch=leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=self._max_bytes,
        )
        response = await peer.call(
            new(
                replica_id=-1,
                max_wait=datetime.timedelta(milliseconds=self._config.fetch_max_wait_ms),
                min_bytes=self._config.fetch_min_bytes,
                max_bytes=max(self._max_bytes, self._config.fetch_max_bytes),
                isolation_level=self._isolation,
                session_id=_NO_SESSION,
                session_epoch=FINAL_EPOCH,
                topics=[new.topics(topic=name, topic_id=topic_id, partitions=[partition])],
                forgotten_topics_data=[],
                rack_id="",
            )
        )
        if (code := getattr(response, "error_code", ErrorCode.none)) != ErrorCode.none:
            raise KafkaError(code, f"fetching {self._range.partition}")
        if response.throttle_time:
            await asyncio.wait([peer.closed], timeout=response.throttle_time.total_seconds())
        for topic in response.responses:
            for p in topic.partitions:
                if p.partition_index == number:
                    return p
        raise ProtocolError(f"the fetch response lacks partition {self._range.partition}")

    def _accept(self, p: Any) -> Fetched:
        partition = self._range.partition
        record_batches = list(batches(p.records or b""))
        if not record_batches:
            if p.records:
                raise ProtocolError(
                    f"the fetch response for {partition} contains no complete batch"
                )
            # No records yet. A new leader may not know the high watermark.
            raise KafkaError(
                ErrorCode.offset_not_available,
                f"partition {partition} has no records from offset {self._position} on, but"
                f" should have all before {self._range.end}",
            )
        if record_batches[-1].next_offset <= self._position:
            raise ProtocolError(
                f"the fetch of {partition} from offset {self._position} ended at"
                f" {record_batches[-1].next_offset}"
            )
        start, self._position = self._position, record_batches[-1].next_offset
        aborted = [
            AbortedRange(a.first_offset, a.producer_id)
            for a in p.aborted_transactions or ()
            if self._isolation == READ_COMMITTED
        ]
        return Fetched(self._range, start, record_batches, aborted)

    async def _out_of_range(self) -> Fetched | None:
        """Continue at the log start offset, if the records before it may be skipped."""
        partition = self._range.partition
        deadline = self._cluster.deadline(self._config.default_api_timeout_ms)
        listed = (await list_offsets(self._cluster, {partition: EARLIEST}, deadline))[partition]
        if isinstance(listed, KafkaError):
            raise listed
        if not self._position < listed.offset < self._range.end or self._fails:
            return self._lost(
                f"offset {self._position} of {partition} is out of range: the log begins at"
                f" {listed.offset} now"
            )
        _logger.warning("%s: offsets %d to %d are lost", partition, self._position, listed.offset)
        self._position = listed.offset
        self._stale = True
        return await self._attempt()
