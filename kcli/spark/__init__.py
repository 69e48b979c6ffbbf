"""The data source `k` of Spark: topics as tables and streams, without jars.

    spark.read.format("k").option("kafka.bootstrap.servers", ...).option("subscribe", "t").load()

Options and columns have the meaning they have in Spark's own Kafka source, `format("kafka")`.

    source       the data source and its columns
    options      the options of a query, checked
    option_docs, manual_texts
                 the same, and the rest, for its manual page, k-spark(7)
    batch        spark.read: partitions and their records
    filters      a query's own conditions as bounds of a read
    stream       spark.readStream: offsets as checkpoints, limits of a micro-batch
    checkpoint_ids
                 the ids of topics in these offsets
    offset_ranges
                 ranges of tasks, ends of micro-batches, data loss
    patterns     topics that match subscribePattern
    logs         the topics' partitions and their offsets
    range_fetcher
                 one range of offsets from its leader
    batch_decoder
                 record batches into batches of Arrow
    columns,     the records' bytes into its columns, with numpy; the same in C
      _columns.c
    write_options the options of a write, and the columns of its rows
    sink         writers of batches and streams
    row_producer, rows
                 a task's rows on their way into a producer
    batch_encoder
                 columns of Arrow into batches of records, many rows a step
    letters      rows that cannot be written, as records for a dead letter topic
    transactional_sink
                 exactly once: tasks leave transactions open, the driver ends them
    markers      which batches of a stream each task has written
    dead_letters headers of records that could not be written or read
    values       decoding of a value's bytes, as expressions
    value_options, value_columns
                 the same as options of a read
    msgpack_values, json_values, schema_converter
                 bytes into columns of a schema's types, or the reason why not
    submission   the arguments of `k spark-submit`, checked
    package_archive
                 this package as a zip, for executors
    jobs/        the jobs of `k spark-submit JOB`
    progress     the progress of streams
    installation Spark's scripts, and the environment they need
    quick_start  runs first in each Python that Spark starts
    cluster      a master and workers on this machine
    standalone   the same: command lines, and the master's state

Spark finds the source by itself through the top-level module `pyspark_k` if the package is
installed or on PYTHONPATH; otherwise use `register`. It needs the extra `spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the format `k` in this session."""
    from kcli.spark.source import KafkaSource

    spark.dataSource.register(KafkaSource)
