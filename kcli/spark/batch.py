"""BatchReader: `spark.read.format("k")`, over the range of offsets fixed when it is planned.

Spark passes a query's conditions only if spark.sql.python.filterPushdown.enabled is true. If it is
not, Spark refuses a reader that accepts conditions, and the reader cannot ask which is the case.
But Spark plans with conditions in another kind of worker, by which `batch_reader` recognizes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kcli.client.blocking import Blocking
from kcli.spark.filters import Bounds, bounds_of
from kcli.spark.logs import Logs
from kcli.spark.offset_ranges import KafkaOffsetRange, grouped, split
from kcli.spark.options import ReadOptions
from kcli.spark.processes import keep_modules
from kcli.spark.value_columns import ValueColumns

_ASKS_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass
class BatchTask(InputPartition):
    """The ranges that one task reads, in this order."""

    ranges: list[KafkaOffsetRange]


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: ValueColumns) -> None:
        self._options = options
        self._columns = columns
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        options, bounds = self._options, self._bounds
        with Blocking(Logs, options) as logs:
            ids = logs.partitions()
            first, last = logs.marks(ids, options.start), logs.marks(ids, options.end)
            ids = {p: id for p, id in ids.items() if bounds.take(p)}
            starts = logs.resolve_marks({p: first[p] for p in ids}, "startingOffsets")
            ends = logs.resolve_marks({p: last[p] for p in ids}, "endingOffsets")
            if bounds.since_ms is not None:
                # After the ends were looked up: later records are not read in any case.
                since = logs.since(ids, bounds.since_ms)
                starts = {p: max(starts[p], since.get(p, ends[p])) for p in ids}
        ranges = [
            KafkaOffsetRange(p, *bounds.cut(starts[p], ends[p]), id)
            for p, id in sorted(ids.items())
        ]
        return tasks(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options, self._columns)


class FilteringReader(BatchReader):
    """A batch reader that accepts the query's conditions."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds, others = bounds_of(filters)
        return others


def batch_reader(options: ReadOptions, columns: ValueColumns) -> BatchReader:
    """Return the kind of reader that Spark accepts here."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    is_asked = _ASKS_FILTERS in sys.modules or getattr(main, "name", None) == _ASKS_FILTERS
    return (FilteringReader if is_asked else BatchReader)(options, columns)


def tasks(ranges: list[KafkaOffsetRange], options: ReadOptions) -> list[InputPartition]:
    """Return the tasks that read these ranges."""
    limits = {
        "min_partitions": options.min_partitions,
        "max_records": options.max_records_per_partition,
    }
    return [BatchTask(some) for some in grouped(split(ranges, **limits), **limits)]


def read(
    partition: InputPartition, options: ReadOptions, columns: ValueColumns
) -> Iterator[pa.RecordBatch]:
    """Return one task's records. Without ranges Spark makes a partition of its own, which is
    empty.
    """
    if not isinstance(partition, BatchTask):
        return
    from kcli.spark.range_fetcher import read_ranges  # imported here: planning does not need it

    keep_modules()
    for offset_range, batch in read_ranges(options, partition.ranges, columns.read):
        yield columns.decoded(batch, offset_range.partition)
