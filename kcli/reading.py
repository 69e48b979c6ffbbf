"""Reads topics without a group, and prints what it reads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcli.client.errors import ClusterUnreachable
from kcli.formatters import Formatter, Unprintable
from kcli.options import Refused
from kcli.output import answer_bytes, complain
from kcli.running import EXPECTED, reason
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kcli.client.cluster import TopicMetadata
    from kcli.client.config import ConsumerConfig
    from kcli.client.consumer import Consumer, FetchedBatch

RECORDS_AT_ONCE = 20_000
LOOK_AGAIN_S = 0.1
FOREVER_MS = 1 << 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be read: a topic, or all that match a pattern; of a topic perhaps one partition,
    from `start` on: earliest, latest, or an offset.  None stands for no limit.
    """

    topic: str | None = None
    include: str | None = None
    partition: int | None = None
    start: str = "latest"
    messages: int | None = None
    patience_ms: int | None = None
    skip_unprintable: bool = False

    def __str__(self) -> str:
        return self.topic or f"matching {self.include}"


class Reading:
    """One run; `count` is how many records were read for printing."""

    def __init__(self, wanted: Wanted, formats: Formatter, config: ConsumerConfig) -> None:
        self.count = 0
        self._wanted = wanted
        self._formats = formats
        self._config = config

    async def all(self) -> None:
        """Until nothing came for the patience given, or enough records were printed.

        Raises Unprintable, Refused for a partition that is not there, ClusterUnreachable, and what
        the consumer's poll raises.
        """
        from kcli.client.consumer import Consumer

        async with Consumer(self._config) as consumer:
            if not await self._assigned(consumer):
                return
            keeping_up = asyncio.create_task(self._keep_up(consumer))
            try:
                while (left := self._left()) > 0:
                    found = await consumer.poll_batches(self._patience_ms(), left)
                    if not found:
                        return
                    self._print(found)
            finally:
                keeping_up.cancel()

    def _left(self) -> int:
        limit = self._wanted.messages
        return RECORDS_AT_ONCE if limit is None else min(limit - self.count, RECORDS_AT_ONCE)

    def _patience_ms(self) -> float:
        return FOREVER_MS if self._wanted.patience_ms is None else self._wanted.patience_ms

    async def _assigned(self, consumer: Consumer) -> bool:
        """Assign what is there, waiting for it; False when it is not there in time."""
        reached = False
        try:
            async with asyncio.timeout(self._patience_ms() / 1000):
                while not (partitions := await self._partitions(consumer)):
                    if not reached:
                        complain(f"Waiting for topic {self._wanted}")
                    reached = True
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            if not reached:
                raise ClusterUnreachable("listTopics") from None
            return False
        consumer.assign(partitions)
        if self._wanted.partition is not None:
            await self._seek(consumer, partitions[0])
        return True

    async def _seek(self, consumer: Consumer, partition: TopicPartition) -> None:
        match self._wanted.start:
            case "earliest":
                await consumer.seek_to_beginning()
            case "latest":
                await consumer.seek_to_end()
            case offset:
                await consumer.seek(partition, int(offset))

    async def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        """Those that are meant, of what the cluster has now."""
        cluster, config, topic = consumer.cluster, self._config, self._wanted.topic
        names = None if topic is None else [topic]
        create = config.allow_auto_create_topics and names is not None
        refused = await cluster.retry(
            "listTopics",
            cluster.deadline(config.default_api_timeout_ms),
            lambda: cluster.refresh(names, create=create),
        )
        for error in refused.values():
            if not error.code.retriable:
                raise error
        found = [
            TopicPartition(one.name, partition.partition)
            for one in cluster.topics.values()
            if (one.name == topic if topic is not None else self._is_included(one))
            for partition in one.partitions
        ]
        number = self._wanted.partition
        if number is None or not found:
            return found
        chosen = [partition for partition in found if partition.partition == number]
        if not chosen:
            raise Refused(f"topic {topic} has no partition {number}; it has {len(found)}")
        return chosen

    def _is_included(self, topic: TopicMetadata) -> bool:
        internal = topic.is_internal and self._config.exclude_internal_topics
        return not internal and re.fullmatch(self._wanted.include or "", topic.name) is not None

    async def _keep_up(self, consumer: Consumer) -> None:
        """Read partitions and topics that were added, too (metadata.max.age.ms)."""
        while self._wanted.partition is None:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            try:
                found = await self._partitions(consumer)
            except EXPECTED as error:
                complain(f"k console-consumer: {reason(error)}")
                continue
            if added := set(found) - set(consumer.assignment):
                consumer.assign([*consumer.assignment, *sorted(added)])

    def _print(self, batches: Sequence[FetchedBatch]) -> None:
        try:
            text = b"".join([self._formats.lines(batch) for batch in batches])
        except Unprintable:
            self._print_one_by_one(batches)
            return
        self.count += sum(len(batch.records) for batch in batches)
        answer_bytes(text)

    def _print_one_by_one(self, batches: Sequence[FetchedBatch]) -> None:
        """What can be printed; at the first that cannot it ends, or it is passed over."""
        for batch in batches:
            for record in batch.records:
                self.count += 1
                try:
                    answer_bytes(self._formats.line(batch, record))
                except Unprintable as error:
                    if not self._wanted.skip_unprintable:
                        raise
                    complain(f"Error processing message, skipping this message: {error}")
