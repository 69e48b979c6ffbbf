"""The sink's writers for batches and streams.

At least once, by default: a task succeeds only if every record is acknowledged, and fails with the
first that is not. The producer is idempotent, so its retries write no duplicates; but a task or a
batch of a stream that Spark runs again is written again.

Exactly once: transactional_sink.py.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kcli.client.blocking import Blocking
from kcli.client.producer.producer import Producer
from kcli.spark import transactional_sink
from kcli.spark.processes import keep_modules
from kcli.spark.row_producer import RowProducer
from kcli.spark.transactional_sink import TaskMessage, task_of_batch, task_of_stream
from kcli.spark.write_options import WriteOptions

Messages = list[WriterCommitMessage | None]


@dataclass
class RowCount(WriterCommitMessage):
    """The number of rows that one task wrote."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._name = str(uuid.uuid4())
        """The name of this write, the same in all its tasks."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        keep_modules()
        if not self._options.exactly_once:
            return write(iterator, self._options, self._columns)
        task = task_of_batch(self._name)
        return TaskMessage(
            transactional_sink.write_in_transaction(iterator, self._options, self._columns, task)
        )

    def commit(self, messages: Messages) -> None:
        transactional_sink.commit(messages, self._options)

    def abort(self, messages: Messages) -> None:
        if self._options.exactly_once:
            transactional_sink.abort(messages, self._options, self._name)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        keep_modules()
        if not self._options.exactly_once:
            return write(iterator, self._options, self._columns)
        task = task_of_stream()
        return TaskMessage(
            transactional_sink.write_in_transaction(iterator, self._options, self._columns, task)
        )

    def commit(self, messages: Messages, batchId: int) -> None:
        transactional_sink.commit(messages, self._options)

    def abort(self, messages: Messages, batchId: int) -> None:
        transactional_sink.abort(messages, self._options)


def write(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, columns: tuple[str, ...]
) -> RowCount:
    """Write all rows until they are acknowledged. Raises WriteFailed."""
    outlet = RowProducer(options, columns)
    # Many tasks after a shuffle have no rows, and then need no connection.
    if (first := next(batches, None)) is not None:
        with Blocking(Producer, options.client, on_batch=outlet.on_batch) as producer:
            outlet.send_all(producer, itertools.chain([first], batches))
    return RowCount(outlet.amount.rows)
