"""Consuming: reads topics as fast as possible, and counts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from kcli.client.consumer.listener import RebalanceListener
from kcli.client.errors import ClusterUnreachable
from kcli.perf.consumed import Consumed
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.config import ConsumerConfig
    from kcli.client.consumer.consumer import Consumer
    from kcli.client.topic_metadata import TopicMetadata

POLL_MS = 100
LOOK_AGAIN_S = 0.1

_key = itemgetter(2)
_value = itemgetter(3)


@dataclass(frozen=True, slots=True)
class ConsumerPerfOptions:
    """One topic, or those whose whole name matches; `patience_s` is the longest time without a
    record.
    """

    topic: str | None
    include: re.Pattern[str] | None
    records: int
    patience_s: float
    report_every_s: float


class Consuming:
    """One run; `on_window` is called for each reporting interval, with the records read in it, and
    the mebibytes and records since the start.
    """

    def __init__(
        self,
        options: ConsumerPerfOptions,
        config: ConsumerConfig,
        on_window: Callable[[Consumed, float, int], object],
        now_ms: Callable[[], int],
    ) -> None:
        self._options = options
        self._config = config
        self._on_window = on_window
        self._now_ms = now_ms
        self._start_ms = self._end_ms = self._window_ms = now_ms()
        self._rebalance_ms = self._window_rebalance_ms = 0
        self._records = self._bytes = 0
        self._window_records = self._window_bytes = 0

    @property
    def total(self) -> Consumed:
        return Consumed.of(
            self._start_ms, self._end_ms, self._rebalance_ms, self._records, self._bytes
        )

    async def all(self) -> None:
        """Read until enough records were read, or none arrived for too long.

        Raises ClusterUnreachable, and errors of the consumer's poll.
        """
        from kcli.client.consumer.consumer import Consumer
        from kcli.client.serialization import BYTES_IN

        async with Consumer(self._config, **BYTES_IN) as consumer:
            self._start_ms = self._end_ms = self._window_ms = self._now_ms()
            try:
                if self._config.group_id is not None:
                    await self._share(consumer)
                elif await self._assign(consumer):
                    await self._read(consumer)
            finally:
                self._end_ms = self._now_ms()

    async def _share(self, consumer: Consumer) -> None:
        """Read as a member of the group; the search for partitions is joining it."""
        options = self._options
        topics = [] if options.topic is None else [options.topic]
        consumer.subscribe(topics, pattern=options.include, listener=_Watch(self._rebalanced))
        await self._read(consumer)
        if not consumer.cluster.nodes:
            raise ClusterUnreachable("listTopics")

    def _rebalanced(self, since_ms: int | None) -> int:
        """Return the time since when no partition is owned; count that time at the next
        assignment.
        """
        now_ms = self._now_ms()
        if since_ms is not None:
            self._rebalance_ms += now_ms - since_ms
            self._window_rebalance_ms += now_ms - since_ms
        return now_ms

    async def _read(self, consumer: Consumer) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        last_s = loop.time()
        while self._records < options.records and loop.time() - last_s <= options.patience_s:
            batches = await consumer.poll_batches(POLL_MS)
            if not batches:
                continue
            last_s = loop.time()
            for batch in batches:
                records = batch.rows
                self._records += len(records)
                self._bytes += sum(map(len, filter(None, map(_value, records))))
                self._bytes += sum(map(len, filter(None, map(_key, records))))
            now_ms = self._now_ms()
            if now_ms - self._window_ms >= options.report_every_s * 1000:
                self._report(now_ms)

    def _report(self, now_ms: int) -> None:
        window = Consumed.of(
            self._window_ms,
            now_ms,
            self._window_rebalance_ms,
            self._records - self._window_records,
            self._bytes - self._window_bytes,
        )
        self._window_ms, self._window_rebalance_ms = now_ms, 0
        self._window_records, self._window_bytes = self._records, self._bytes
        self._on_window(window, self.total.mib, self._records)

    async def _assign(self, consumer: Consumer) -> bool:
        """Wait for existing partitions and assign them; return False if there are none in time."""
        reached = False
        try:
            async with asyncio.timeout(self._options.patience_s):
                while not (partitions := await self._partitions(consumer)):
                    reached = True
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            if not reached:
                raise ClusterUnreachable("listTopics") from None
            return False
        consumer.assign(partitions)
        self._rebalance_ms = self._window_rebalance_ms = self._now_ms() - self._start_ms
        return True

    async def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        """Return the existing partitions. Raises KafkaError if the topic is unauthorized."""
        cluster, topic = consumer.cluster, self._options.topic
        refused = await cluster.retry(
            "listTopics",
            cluster.deadline(self._config.default_api_timeout_ms),
            lambda: cluster.refresh(
                None if topic is None else [topic],
                create=topic is not None and self._config.allow_auto_create_topics,
            ),
        )
        for error in refused.values():
            if not error.code.retriable:
                raise error
        return [
            TopicPartition(topic.name, partition.partition)
            for topic in cluster.topics.values()
            if self._is_included(topic)
            for partition in topic.partitions
        ]

    def _is_included(self, topic: TopicMetadata) -> bool:
        if self._options.include is None:
            return topic.name == self._options.topic
        hidden = topic.is_internal and self._config.exclude_internal_topics
        return not hidden and self._options.include.fullmatch(topic.name) is not None


class _Watch(RebalanceListener):
    """Counts the time without partitions, as ConsumerPerformance does."""

    def __init__(self, rebalanced: Callable[[int | None], int]) -> None:
        self._rebalanced = rebalanced
        self._since_ms: int | None = rebalanced(None)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._since_ms = self._rebalanced(None)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._rebalanced(self._since_ms)
        self._since_ms = None
