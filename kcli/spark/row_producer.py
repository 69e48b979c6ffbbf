"""RowProducer: sends a task's rows with a producer, counts them, and keeps the first failure.

    collected     some MB of rows at a time, since the cost is per step over columns
    by topic      each with its partitions and limits, requested once
    unwritable    rows known to be refused: to dlqTopic, or the task fails
    encoded       the others, as batches that the producer sends as they are (batch_encoder.py)

If records pass interceptors or a custom partitioner they are sent one by one.

Rows of 200 bytes with different keys cost 0.7 us of processor time each, without keys or in one
partition a little less, against 6 us one by one (py-spy, four partitions, no compression): encoding
0.4 of that, the socket 0.15, choosing partitions 0.1, the batches' checksums 0.03. In a query most
of the time is Spark's, which converts its rows to columns and passes them on.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kcli.client.admin.configs import Query, describe
from kcli.client.admin.descriptions import ResourceType
from kcli.client.blocking import Blocking
from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError, TimedOut, TransactionFailed
from kcli.client.producer.partition_queue import BatchResult
from kcli.client.producer.producer import Producer, wall_clock_ms
from kcli.spark.batch_encoder import Columns, Marks, Numbers, encoded, headers_of, partitions_of
from kcli.spark.letters import letter_of
from kcli.spark.markers import Amount
from kcli.spark.rows import rows_of
from kcli.spark.write_options import WriteOptions
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.batch import HEADER_SIZE

_logger = logging.getLogger(__name__)

COLLECTED_BYTES = 4 << 20
COLLECTED_ROWS = 1 << 17
NULL_TOPIC = "null topic present in the data. Use the topic option for setting a topic"

# Errors of one row or its topic, not of all.
_OF_ROW = frozenset(
    {
        ErrorCode.invalid_topic_exception,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.message_too_large,
        ErrorCode.invalid_timestamp,
    }
)


class WriteFailed(Exception):
    """A row was not written; the text has the reason and the remedy."""


@dataclass(frozen=True)
class TopicLimits:
    """Limits of a topic. Requested only with dlqTopic: a row outside of these limits is sent
    there. Without it, the broker's error ends the job anyway.
    """

    partitions: int
    max_bytes: int
    needs_key: bool = False


class RowProducer:
    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._config = ProducerConfig.of(options.client)
        self._failed: WriteFailed | None = None
        self._rows = 0
        self._bytes = 0
        self._limits: dict[str, TopicLimits | str] = {}
        """A topic's limits, or the reason why it cannot be written to."""

    @property
    def amount(self) -> Amount:
        """The amount to write so far."""
        return Amount(self._rows, self._bytes)

    def count(self, batch: pa.RecordBatch) -> None:
        """Count the rows, and the bytes of their keys and values."""
        self._rows += batch.num_rows
        for name in ("key", "value"):
            if name in self._columns:
                self._bytes += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0

    def on_batch(self, result: BatchResult) -> None:
        """Note the outcome of a batch; the producer's `on_batch`."""
        if result.error is not None and self._failed is None:
            where = f"{result.topic}-{result.partition}"
            self._failed = WriteFailed(f"write to {where} failed: {result.error}")

    def check(self) -> None:
        """Raises WriteFailed with the first failure, if there was one."""
        if self._failed is not None:
            raise self._failed

    def send_all(self, producer: Blocking[Producer], batches: Iterable[pa.RecordBatch]) -> None:
        """Send all rows until they are acknowledged. Raises WriteFailed."""
        for rows in self._collect(batches):
            producer.run(functools.partial(self._send, rows=rows))
        producer.flush()
        self.check()

    def _collect(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        size = count = 0
        for batch in batches:
            self.count(batch)
            parts.append(batch.select(list(self._columns)))
            size += parts[-1].nbytes
            count += batch.num_rows
            if size >= COLLECTED_BYTES or count >= COLLECTED_ROWS:
                yield pa.concat_batches(parts)
                parts, size, count = [], 0, 0
        if count:
            yield pa.concat_batches(parts)

    async def _send(self, producer: Producer, rows: pa.RecordBatch) -> None:
        self.check()
        try:
            if producer.has_plugins:
                await self._send_one_by_one(producer, rows)
                return
            for topic, part in self._by_topic(rows):
                if topic is None:
                    await self._refuse(producer, part, NULL_TOPIC)
                else:
                    await self._send_to(producer, topic, part)
        except TransactionFailed as error:
            self.check()
            raise WriteFailed(f"a row was not written: {error.cause}") from error
        except (ClientError, KafkaError) as error:
            self.check()
            raise WriteFailed(f"a row was not written: {error}") from error

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, rows
            return
        column = rows.column("topic").dictionary_encode()
        names: list[str] = column.dictionary.to_pylist()
        if not column.null_count and len(names) == 1:
            yield names[0], rows
            return
        codes = pc.fill_null(column.indices, len(names)).to_numpy()
        for code, name in enumerate([*names, None]):
            of_topic = np.flatnonzero(codes == code)
            if len(of_topic):
                yield name, rows.take(pa.array(of_topic))

    async def _send_to(self, producer: Producer, topic: str, rows: pa.RecordBatch) -> None:
        limits = await self._limits_of(producer, topic)
        if isinstance(limits, str):
            await self._refuse(producer, rows, limits)
            return
        while not isinstance(columns := self._check_rows(rows, limits), Columns):
            reasons, marks = columns
            await self._refuse(producer, rows.filter(pa.array(marks)), *reasons)
            rows = rows.filter(pa.array(~marks))
        partitions = self._partitions_of(producer, topic, rows, columns, limits)
        for partition, records in encoded(columns, partitions, self._batch_size):
            while not producer.try_send_encoded(topic, partition, records):
                await producer.ready(topic)
                self.check()

    @property
    def _batch_size(self) -> int:
        return min(self._config.batch_size, self._config.max_request_size)

    def _columns_of(self, rows: pa.RecordBatch) -> Columns:
        keys = rows.column("key").cast(pa.binary()) if "key" in self._columns else None
        headers = headers_of(rows.column("headers")) if "headers" in self._columns else None
        now = wall_clock_ms()
        if "timestamp" in self._columns:
            micros = rows.column("timestamp").cast(pa.int64())
            times = pc.fill_null(pc.divide(micros, 1000), now).to_numpy()
        else:
            times = np.full(len(rows), now)
        return Columns(rows.column("value").cast(pa.binary()), keys, headers, times)

    def _partitions_of(
        self,
        producer: Producer,
        topic: str,
        rows: pa.RecordBatch,
        columns: Columns,
        limits: TopicLimits,
    ) -> Numbers:
        """Return the partitions of rows: by their column, else by key, else any, the same for a
        batch's worth of rows.
        """
        assignment = np.full(len(rows), -1)
        if "partition" in self._columns:
            partitions = rows.column("partition")
            assignment = pc.fill_null(partitions, -1).to_numpy().astype(np.int64)
        if columns.key is not None and not self._config.partitioner_ignore_keys:
            keyed = (assignment < 0) & columns.key.is_valid().to_numpy(zero_copy_only=False)
            if keyed.any():
                assignment = np.where(
                    keyed, partitions_of(columns.key, limits.partitions), assignment
                )
        anywhere = np.flatnonzero(assignment < 0)
        if len(anywhere):
            batch = np.cumsum(columns.sizes[anywhere]) // max(self._batch_size, 1)
            batch -= batch[0]
            numbers = [producer.choose_partition(topic) for _ in range(int(batch[-1]) + 1)]
            assignment[anywhere] = np.array(numbers)[batch]
        return assignment

    # Rows that cannot be written

    async def _limits_of(self, producer: Producer, topic: str) -> TopicLimits | str:
        if topic not in self._limits:
            self._limits[topic] = await self._ask_limits(producer, topic)
        return self._limits[topic]

    async def _ask_limits(self, producer: Producer, topic: str) -> TopicLimits | str:
        try:
            partitions = await producer.partitions_for(topic)
        except TimedOut as error:
            return f"{error}"
        except KafkaError as error:
            if error.code in _OF_ROW:
                return f"topic {topic}: {error}"
            raise
        most = self._config.max_request_size
        if self._options.dlq_topic is None:
            return TopicLimits(partitions, most)
        resource = (ResourceType.TOPIC, topic)
        query = Query(keys=["max.message.bytes", "cleanup.policy"])
        deadline = producer.cluster.deadline(self._config.max_block_ms)

        async def ask() -> dict[str, str]:
            entries = (await describe(await producer.cluster.peer(), [resource], query))[resource]
            if isinstance(entries, KafkaError):
                raise entries
            return {entry.name: entry.value or "" for entry in entries}

        try:
            configs = await producer.cluster.retry("describeConfigs", deadline, ask)
        except KafkaError as error:
            _logger.warning("topic %s: %s; rows that are too large for it will fail", topic, error)
            configs = {}
        most = min(most, int(configs.get("max.message.bytes") or most))
        return TopicLimits(partitions, most, "compact" in configs.get("cleanup.policy", ""))

    def _check_rows(
        self, rows: pa.RecordBatch, limits: TopicLimits
    ) -> tuple[Sequence[str], Marks] | Columns:
        """Return the columns to write, or rows that cannot be written and their reasons, which are
        one for each of these rows or one for all.
        """
        if "headers" in self._columns:
            marks = self._lacking_names(rows.column("headers"))
            if marks.any():
                return ["a header's key is null"], marks
        columns = self._columns_of(rows)
        marks = columns.sizes + HEADER_SIZE > limits.max_bytes
        if marks.any():
            sizes = columns.sizes[marks] + HEADER_SIZE
            return [
                f"the record is about {size} bytes, and the topic or max.request.size allows at"
                f" most {limits.max_bytes}"
                for size in sizes.tolist()
            ], marks
        if "partition" in self._columns:
            partitions = pc.fill_null(rows.column("partition"), 0).to_numpy()
            marks = (partitions < 0) | (partitions >= limits.partitions)
            if marks.any():
                numbers = partitions[marks].tolist()
                return [
                    f"partition {n} does not exist; the topic has {limits.partitions}"
                    for n in numbers
                ], marks
        marks = columns.times < 0
        if marks.any():
            return ["its timestamp is before 1970"], marks
        if limits.needs_key:
            keys = columns.key
            marks = np.full(len(rows), True) if keys is None else _nulls(keys)
            if marks.any():
                return ["it has no key, and the topic is compacted"], marks
        return columns

    def _lacking_names(self, headers: pa.ListArray) -> Marks:
        if not headers.flatten().field("key").null_count:
            return np.zeros(len(headers), np.bool_)
        return np.array(
            [any(h is None or h["key"] is None for h in of or ()) for of in headers.to_pylist()]
        )

    async def _refuse(self, producer: Producer, rows: pa.RecordBatch, *reasons: str) -> None:
        """Send rows to the dead letter topic, or raise WriteFailed.

        `reasons` are one for each row, or one for all.
        """
        target = self._options.dlq_topic
        if target is None:
            topic = self._options.topic or (
                rows.column("topic")[0].as_py() if "topic" in self._columns else None
            )
            where = "" if topic is None else f"topic {topic}: "
            raise WriteFailed(
                f"a row was not written: {where}{reasons[0]}; correct it, or name a topic for such"
                " rows with the option dlqTopic"
            )
        limits = await self._limits_of(producer, target)
        if isinstance(limits, str):
            raise WriteFailed(f"a row was not written, nor to the dlqTopic {target}: {limits}")
        of_rows = reasons if len(reasons) == rows.num_rows else reasons * rows.num_rows
        pairs = zip(rows_of(rows, self._columns, self._options.topic), of_rows, strict=True)
        for row, reason in pairs:
            key, value, headers = letter_of(row, reason, limits.max_bytes)
            time = None if row.timestamp is None or row.timestamp < 0 else row.timestamp
            while not producer.try_send(target, value, key, None, time, headers):
                await producer.ready(target)
                self.check()

    # Rows that pass interceptors or a partitioner

    async def _send_one_by_one(self, producer: Producer, rows: pa.RecordBatch) -> None:
        offer = producer.try_send
        for index, row in enumerate(rows_of(rows, self._columns, self._options.topic)):
            if (topic := row.topic) is None:
                await self._refuse(producer, rows.slice(index, 1), NULL_TOPIC)
                continue
            try:
                while not offer(topic, *row[1:]):
                    await producer.ready(topic)
                    self.check()
            except KafkaError as error:
                if error.code not in _OF_ROW:
                    raise
                await self._refuse(producer, rows.slice(index, 1), str(error))


def _nulls(column: pa.Array) -> Marks:
    nulls: Marks = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
