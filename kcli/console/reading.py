"""Reads topics, alone or as a member of a group, and prints the records."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcli.client.errors import ClusterUnreachable
from kcli.command.command_runner import EXPECTED, reason
from kcli.command.options import Refused
from kcli.command.output import complain, print_bytes
from kcli.console.extent import RECORDS_AT_ONCE, UpTo, seek
from kcli.console.formatter import Formatter, Unprintable
from kcli.console.offset_range import OffsetRange
from kcli.console.record_filter import RecordFilter
from kcli.console.standard_output import StandardOutput
from kcli.patterns.java_patterns import compiled
from kserver.model import Offset, TopicPartition

if TYPE_CHECKING:
    from kcli.client.config import ConsumerConfig
    from kcli.client.consumer.consumer import Consumer, FetchedBatch
    from kcli.client.topic_metadata import TopicMetadata

LOOK_AGAIN_S = 0.1
SLOW_S = 1.0
"""Seconds: printing one poll's records takes no longer, unless the output's reader is slow."""
FOREVER_MS = 1 << 40
REACH_MS = 1000
"""Minimum time to reach a cluster: --timeout-ms 0 applies to records."""

Poll = Callable[[float, int], Awaitable["list[FetchedBatch] | None"]]


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """A topic to read, or all that match a pattern; of a topic perhaps one partition.

    None stands for no limit, and in `offsets` for auto.offset.reset. `to_end`: only records that
    exist now. `filter`: only these records are printed and counted. `in_group`: the consumer has a
    group.id, and shares the topics with the other members.
    """

    topic: str | None = None
    include: str | None = None
    partition: int | None = None
    offsets: OffsetRange | None = None
    to_end: bool = False
    filter: RecordFilter | None = None
    messages: int | None = None
    patience_ms: int | None = None
    skip_unprintable: bool = False
    in_group: bool = False

    def __str__(self) -> str:
        return self.topic or f"matching {self.include}"


class Reading:
    """One run; `count` is the number of records that were printed, or should have been."""

    def __init__(self, options: ReadingOptions, formats: Formatter, config: ConsumerConfig) -> None:
        self.count = 0
        self._options = options
        self._include = None if options.include is None else compiled(options.include)
        self._formats = formats
        self._config = config
        self._output = StandardOutput()
        self._at_once = RECORDS_AT_ONCE
        """Maximum number of records of one poll."""
        self._unprinted: dict[TopicPartition, Offset] = {}
        """The first offset of each partition that was polled and then not printed."""

    async def all(self) -> None:
        """Read until a stop, or until no record arrived for `patience_ms`, or enough were printed.

        Raises Unprintable, Refused if a partition does not exist, ClusterUnreachable, and errors of
        the consumer's poll.
        """
        from kcli.client.consumer.consumer import Consumer
        from kcli.client.serialization import BYTES_IN

        async with Consumer(self._config, **BYTES_IN) as consumer:
            if self._options.in_group:
                await self._share(consumer)
                return
            partitions = await self._wait_for_partitions(consumer)
            if partitions is None:
                return
            up_to = await self._go(consumer, partitions)
            if up_to is not None:
                await self.print_all(up_to.poll)
                return
            keeping_up = asyncio.create_task(self._keep_up(consumer))
            try:
                await self.print_all(consumer.poll_batches)
            finally:
                keeping_up.cancel()

    async def print_all(self, poll: Poll) -> None:
        """Print the records of `poll` as long as it returns some in time."""
        while (most := self._remaining()) > 0 and (
            batches := await poll(self._patience_ms(), most)
        ):
            await self._print(batches)

    async def _share(self, consumer: Consumer) -> None:
        """Print the group's records; at the end the consumer commits printed ones, and leaves."""
        topic = self._options.topic
        consumer.subscribe([] if topic is None else [topic], pattern=self._include)
        try:
            await self.print_all(consumer.poll_batches)
        finally:
            for partition in set(self._unprinted) & set(consumer.assignment):
                await consumer.seek(partition, self._unprinted[partition])
        if self._remaining() > 0 and self._options.patience_ms != 0 and not consumer.cluster.nodes:
            raise ClusterUnreachable("listTopics")

    def _remaining(self) -> int:
        """Return how many records to poll at once. With a filter, more than are left to print; but
        in a group only as many, since unread records must not be committed.
        """
        limit, options = self._options.messages, self._options
        passes_over = options.filter is not None and not options.in_group
        if limit is None or (passes_over and self.count < limit):
            return self._at_once
        return min(limit - self.count, self._at_once)

    def _patience_ms(self) -> float:
        return FOREVER_MS if self._options.patience_ms is None else self._options.patience_ms

    async def _wait_for_partitions(self, consumer: Consumer) -> list[TopicPartition] | None:
        """Wait for existing partitions and return them; None if there are none in time."""
        reached = False
        try:
            async with asyncio.timeout(max(self._patience_ms(), REACH_MS) / 1000):
                while not (partitions := await self._partitions(consumer)):
                    if not reached:
                        complain(f"Waiting for topic {self._options}")
                    reached = True
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            if not reached:
                raise ClusterUnreachable("listTopics") from None
            return None
        return partitions

    async def _go(self, consumer: Consumer, partitions: list[TopicPartition]) -> UpTo | None:
        """Seek to the start; return a reader up to the stop, if there is one."""
        options = self._options
        if options.offsets is not None:
            return await seek(
                consumer, self._config, partitions, options.offsets, to_end=options.to_end
            )
        consumer.assign(partitions)
        if not options.to_end:
            return None
        return UpTo(consumer, self._config, await consumer.end_offsets(partitions))

    async def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        """Return the selected partitions that exist now."""
        cluster, config, topic = consumer.cluster, self._config, self._options.topic
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
        partitions = [
            TopicPartition(topic.name, partition.partition)
            for topic in cluster.topics.values()
            if self._is_included(topic)
            for partition in topic.partitions
        ]
        number = self._options.partition
        if number is None or not partitions:
            return partitions
        selection = [partition for partition in partitions if partition.partition == number]
        if not selection:
            raise Refused(f"topic {topic} has no partition {number}; it has {len(partitions)}")
        return selection

    def _is_included(self, topic: TopicMetadata) -> bool:
        if self._include is None:
            return topic.name == self._options.topic
        internal = topic.is_internal and self._config.exclude_internal_topics
        return not internal and self._include.fullmatch(topic.name) is not None

    async def _keep_up(self, consumer: Consumer) -> None:
        """Assign partitions and topics that were added (metadata.max.age.ms)."""
        while self._options.partition is None:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            try:
                partitions = await self._partitions(consumer)
            except EXPECTED as error:
                complain(f"k console-consumer: {reason(error)}")
                continue
            if new := set(partitions) - set(consumer.assignment):
                consumer.assign([*consumer.assignment, *sorted(new)])

    async def _print(self, batches: Sequence[FetchedBatch]) -> None:
        if self._options.filter is not None:
            batches = self._filter(batches, self._options.filter)
        if self._options.in_group:
            await self._print_in_group(batches)
            return
        try:
            # Not joined: that would copy them all once more.
            pieces = [self._formats.lines(batch) for batch in batches]
        except Unprintable:
            self._print_one_by_one(batches)
            return
        self.count += sum(len(batch.rows) for batch in batches)
        print_bytes(*pieces)

    async def _print_in_group(self, batches: Sequence[FetchedBatch]) -> None:
        """Print, and note where each partition continues if printing fails or is cancelled."""
        began_s = asyncio.get_running_loop().time()
        failure, by_batch = None, True
        try:
            lines = [self._formats.lines(batch) for batch in batches]
            printed = sum(len(batch.rows) for batch in batches)
        except Unprintable:
            by_batch = False
            lines, failure = self._lines_one_by_one(batches)
            printed = len(lines)
        try:
            await self._output.write(b"".join(lines))
        except BaseException:
            if by_batch:
                lines = [self._formats.line(b, record) for b in batches for record in b.records]
            self._note_printed(batches, whole_lines(lines, self._output.written))
            raise
        self._note_printed(batches, printed)
        if failure is not None:
            raise failure
        if asyncio.get_running_loop().time() - began_s > SLOW_S:
            # Offsets are committed between two polls, so a slow output needs small polls.
            self._at_once = self._config.max_poll_records

    def _lines_one_by_one(
        self, batches: Sequence[FetchedBatch]
    ) -> tuple[list[bytes], Unprintable | None]:
        """Format each record, up to one that cannot be printed, unless those are to be skipped."""
        lines = []
        for batch in batches:
            for record in batch.records:
                try:
                    lines.append(self._formats.line(batch, record))
                except Unprintable as error:
                    if not self._options.skip_unprintable:
                        return lines, error
                    complain(f"Error processing message, skipping this message: {error}")
                    lines.append(b"")
        return lines, None

    def _note_printed(self, batches: Sequence[FetchedBatch], printed: int) -> None:
        """Note that the first `printed` records were printed, and the others not."""
        self.count += printed
        for batch in batches:
            for row in batch.rows[printed:]:
                partition = TopicPartition(batch.topic, batch.partition)
                self._unprinted.setdefault(partition, row[0])
                break
            printed = max(0, printed - len(batch.rows))

    def _filter(
        self, batches: Sequence[FetchedBatch], filter: RecordFilter
    ) -> Sequence[FetchedBatch]:
        """Return the records that match, at most as many as are left to print."""
        limit = self._options.messages
        rest = None if limit is None else limit - self.count
        matches = []
        for batch in batches:
            rows = [row for row in batch.rows if filter.matches(row)][:rest]
            matches.append(batch._replace(rows=rows))
            if rest is not None:
                rest -= len(rows)
        return matches

    def _print_one_by_one(self, batches: Sequence[FetchedBatch]) -> None:
        """Print records one by one; one that cannot be printed is skipped or raised."""
        for batch in batches:
            for record in batch.records:
                self.count += 1
                try:
                    print_bytes(self._formats.line(batch, record))
                except Unprintable as error:
                    if not self._options.skip_unprintable:
                        raise
                    complain(f"Error processing message, skipping this message: {error}")


def whole_lines(lines: Iterable[bytes], size: int) -> int:
    """Return how many lines end within the first `size` bytes of them all."""
    return sum(1 for end in itertools.accumulate(map(len, lines)) if end <= size)
