"""StreamReader: `spark.readStream.format("k")`, offsets that become a checkpoint's.

Offsets are those of Spark's own source, as JSON: {"topic":{"0":23}}, with the ids of the topics
(checkpoint_ids).  A topic whose id is not that of the checkpoint was deleted and created again.
That is data lost; where failOnDataLoss is false the topic is read from its earliest offset.

A stream that begins at "latest" begins at marks in place of offsets, {"topic":{"0":-1}}; the first
micro-batch is empty there and ends at offsets.  So what latest was is decided once and stands in
the checkpoint, however often the query is started again before that batch is committed.

One of these lives beside the driver as long as a run of the query lasts; copies without a
connection are sent to the tasks.
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
from kcli.spark.options import EARLIEST, LATEST, Offsets, ReadOptions, checkpoint_of, offsets_of
from kcli.spark.planning import DataLost, KafkaOffsetRange, changed, limited
from kcli.spark.value_columns import ValueColumns
from kserver.model import TopicPartition

_logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: ValueColumns) -> None:
        self._options = options
        self._columns = columns
        self._logs: Blocking[Logs] | None = None
        self._partitions: set[TopicPartition] = set()
        """The partitions that this run has seen."""
        self._ids: TopicIds = {}
        """The ids of the topics that there were when the cluster was asked last."""
        self._first_ids: TopicIds = {}
        """The id that each topic had when this run first saw it: that of offsets without ids."""
        self._latest: Offsets = {}
        """The ends at the last time that the cluster was asked."""
        self._target: Offsets | None = None
        """Where a run with Trigger.AvailableNow ends."""
        self._last_batch_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(StreamReader(self._options, self._columns))

    def stop(self) -> None:
        if self._logs is not None:
            self._logs.__exit__(None, None, None)
            self._logs = None

    def commit(self, end: Checkpoint) -> None:
        """Nothing: the checkpoint alone says how far the query has come."""

    # Where a micro-batch begins and ends

    def initialOffset(self) -> Checkpoint:
        logs = self._open()
        ids: Ids = logs.partitions()
        self._note(ids)
        return checkpoint_with_ids(logs.marks(ids, self._options.start), self._ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows no limit of two kinds: the least comes with its delay and the most."""
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find_latest(self._partitions)

    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:
        """DataLost for what is gone since `start`, if it matters."""
        marks = offsets_of(start)
        latest = self._find_latest(marks)
        again = recreated(self._first_ids | ids_of(start), self._ids)
        self._tell([f"topic {topic} was deleted and created again" for topic in sorted(again)])
        # No offset of the old topic says anything of the new one.
        marks = {p: EARLIEST if p.topic in again else mark for p, mark in marks.items()}
        if self._target is not None:
            # What was not heard of when the target was set, but is read.
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
        """For the query's progress: what is there, as against what was read."""
        return checkpoint_of(self._latest) if self._latest else None

    def _find_latest(self, known: Collection[TopicPartition]) -> Offsets:
        logs = self._open()
        ids: Ids = logs.partitions(known)
        self._note(ids)
        latest: Offsets = logs.latest(ids)
        self._latest = latest
        return latest

    def _note(self, found: Ids) -> None:
        ids = {p.topic: id for p, id in found.items() if id is not None}
        self._partitions |= found.keys()
        self._ids = ids
        self._first_ids = ids | self._first_ids

    def _begin(self, marks: Offsets, latest: Offsets) -> Offsets:
        """The offsets that a micro-batch begins at, none after where its log ends."""
        new = [p for p in latest if marks.get(p, EARLIEST) == EARLIEST]
        earliest: Offsets = self._open().earliest(new)
        begin = {
            p: latest[p] if mark == LATEST else earliest.get(p, mark)
            for p, mark in marks.items()
            if p in latest or mark >= 0
        }
        self._tell(changed(begin, latest, earliest))
        return {p: min(begin[p], end) if p in begin else earliest[p] for p, end in latest.items()}

    def _is_worth_it(self, begin: Offsets, latest: Offsets, least: int) -> bool:
        """Whether there is enough, or it has waited long enough, or there will be no more."""
        if self._target is not None or self._last_batch_s is None:
            return True
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return waited_ms >= self._options.max_trigger_delay_ms or least <= sum(
            end - begin[p] for p, end in latest.items()
        )

    # What its tasks read

    def partitions(self, start: Checkpoint, end: Checkpoint) -> list[InputPartition]:
        """DataLost for partitions that are gone, if it matters."""
        marks, ends = offsets_of(start), offsets_of(end)
        logs = self._open()
        # A micro-batch that is run again comes before anything was asked.
        if not ends.keys() <= self._partitions:
            self._note(logs.partitions(ends))
        there = [p for p in sorted(ends) if p in self._partitions]
        self._tell([f"partition {p} was deleted" for p in ends if p not in self._partitions])
        # This batch was planned with the ids that its end has, perhaps in an earlier run.
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

    def _tell(self, lost: list[str]) -> None:
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
