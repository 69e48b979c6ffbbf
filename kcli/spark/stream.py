"""StreamReader: `spark.readStream.format("k")`, whose offsets become a checkpoint's.

Offsets are those of Spark's own source, as JSON: {"topic":{"0":23}}, with the ids of the topics
(checkpoint_ids). A topic whose id differs from the checkpoint's was deleted and created again. That
is data loss; if failOnDataLoss is false the topic is read from its earliest offset.

A stream that begins at "latest" begins at marks instead of offsets, {"topic":{"0":-1}}; its first
micro-batch is empty and ends at offsets. So the latest offsets are determined once and are in the
checkpoint, however often the query is started again before that batch is committed.

One reader lives next to the driver during a run of the query; copies without a connection are sent
to the tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kcli.client.blocking import Blocking
from kcli.spark.batch import read, tasks
from kcli.spark.checkpoint_ids import (
    Checkpoint,
    TopicIds,
    checkpoint_with_ids,
    ids_of,
    recreated,
)
from kcli.spark.logs import Ids, Logs
from kcli.spark.offset_ranges import DataLost, KafkaOffsetRange, changed, limited
from kcli.spark.options import Offsets, ReadOptions, checkpoint_of, offsets_of
from kcli.spark.value_columns import ValueColumns
from kserver.model import TopicPartition
from kserver.wire.special_offsets import EARLIEST, LATEST

_logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: ValueColumns) -> None:
        self._options = options
        self._columns = columns
        self._logs: Blocking[Logs] | None = None
        self._partitions: set[TopicPartition] = set()
        """The partitions seen in this run."""
        self._ids: TopicIds = {}
        """The ids of the topics in the last metadata."""
        self._first_ids: TopicIds = {}
        """Each topic's id when this run first saw it: the id of offsets without ids."""
        self._latest: Offsets = {}
        """The end offsets of the last lookup."""
        self._target: Offsets | None = None
        """The end of a run with Trigger.AvailableNow."""
        self._last_batch_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(StreamReader(self._options, self._columns))

    def stop(self) -> None:
        if self._logs is not None:
            self._logs.__exit__(None, None, None)
            self._logs = None

    def commit(self, end: Checkpoint) -> None:
        """Do nothing: the query's progress is only in the checkpoint."""

    # Start and end of a micro-batch

    def initialOffset(self) -> Checkpoint:
        logs = self._open()
        ids: Ids = logs.partitions()
        self._note(ids)
        return checkpoint_with_ids(logs.marks(ids, self._options.start), self._ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit. Spark has no limit of two kinds; ReadMinRows has the delay and implies
        the maximum.
        """
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find_latest(self._partitions)

    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:
        """Return the end of the next micro-batch. Raises DataLost for data lost since `start`, if
        failOnDataLoss.
        """
        marks = offsets_of(start)
        latest = self._find_latest(marks)
        again = recreated(self._first_ids | ids_of(start), self._ids)
        self._report_loss(
            [f"topic {topic} was deleted and created again" for topic in sorted(again)]
        )
        # Offsets of the old topic mean nothing in the new one.
        marks = {p: EARLIEST if p.topic in again else mark for p, mark in marks.items()}
        if self._target is not None:
            # Partitions that are read but were unknown when the target was set.
            self._target |= {
                p: latest[p] for p in marks.keys() & latest.keys() - self._target.keys()
            }
            latest = {p: min(latest[p], end) for p, end in self._target.items() if p in latest}
        begin = self._begin(marks, latest)
        most = self._options.max_offsets_per_trigger
        if isinstance(limit, ReadMinRows):
            if not self._is_worth_it(begin, latest, limit.min_rows):
                return start
        elif isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        else:
            most = None
        self._last_batch_s = time.monotonic()
        end = latest if most is None else limited(begin, latest, most)
        return checkpoint_with_ids(end, self._ids)

    def reportLatestOffset(self) -> Checkpoint | None:
        """Return the latest offsets, for the query's progress."""
        return checkpoint_of(self._latest) if self._latest else None

    def _find_latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        logs = self._open()
        ids: Ids = logs.partitions(partitions)
        self._note(ids)
        latest: Offsets = logs.latest(ids)
        self._latest = latest
        return latest

    def _note(self, new_ids: Ids) -> None:
        ids = {p.topic: id for p, id in new_ids.items() if id is not None}
        self._partitions |= new_ids.keys()
        self._ids = ids
        self._first_ids = ids | self._first_ids

    def _begin(self, marks: Offsets, latest: Offsets) -> Offsets:
        """Return the offsets that a micro-batch begins at, none after the end of its log."""
        new = [p for p in latest if marks.get(p, EARLIEST) == EARLIEST]
        earliest: Offsets = self._open().earliest(new)
        begin = {
            p: latest[p] if mark == LATEST else earliest.get(p, mark)
            for p, mark in marks.items()
            if p in latest or mark >= 0
        }
        self._report_loss(changed(begin, latest, earliest))
        return {p: min(begin[p], end) if p in begin else earliest[p] for p, end in latest.items()}

    def _is_worth_it(self, begin: Offsets, latest: Offsets, least: int) -> bool:
        """Whether there are enough offsets, the delay has passed, or there will be no more."""
        if self._target is not None or self._last_batch_s is None:
            return True
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return waited_ms >= self._options.max_trigger_delay_ms or least <= sum(
            end - begin[p] for p, end in latest.items()
        )

    # Tasks of a micro-batch

    def partitions(self, start: Checkpoint, end: Checkpoint) -> list[InputPartition]:
        """Return the tasks. Raises DataLost for deleted partitions, if failOnDataLoss."""
        marks, ends = offsets_of(start), offsets_of(end)
        logs = self._open()
        # A micro-batch that is run again is planned before any metadata was requested.
        if not ends.keys() <= self._partitions:
            self._note(logs.partitions(ends))
        there = [p for p in sorted(ends) if p in self._partitions]
        self._report_loss([f"partition {p} was deleted" for p in ends if p not in self._partitions])
        # This batch was planned with the ids in its end, perhaps in an earlier run.
        ids = self._ids | ids_of(end)
        again = recreated(self._first_ids | ids_of(start), ids)
        marks = {p: EARLIEST if p.topic in again else mark for p, mark in marks.items()}
        begin = logs.earliest([p for p in there if marks.get(p, EARLIEST) == EARLIEST])
        ranges = [
            KafkaOffsetRange(p, begin.get(p, marks.get(p)), ends[p], ids.get(p.topic))
            for p in there
            if marks.get(p) != LATEST
        ]
        return tasks(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options, self._columns)

    def _report_loss(self, lost: list[str]) -> None:
        if not lost:
            return
        if self._options.fail_on_data_loss:
            raise DataLost(", ".join(lost))
        for what in lost:
            _logger.warning("%s; continuing with the records that exist", what)

    def _open(self) -> Blocking[Logs]:
        if self._logs is None:
            self._logs = Blocking(Logs, self._options).__enter__()
        return self._logs
