"""The data source `k` of Spark: topics as tables and streams, without jars.

    spark.read.format("k").option("kafka.bootstrap.servers", ...).option("subscribe", "t").load()

Options, columns and what they mean are those of Spark's own Kafka source, `format("kafka")`.

    source       the data source and its columns
    options      what a query was told, checked
    option_docs, manual_texts
                 the same, and the rest, for its manual page, k-spark(7)
    batch        spark.read: what each task reads
    filters      what a query's own conditions leave to read
    stream       spark.readStream: offsets as checkpoints, how much at once
    checkpoint_ids
                 the ids of topics in these offsets
    planning     what one task reads, where a micro-batch ends, what was lost
    patterns     which topics subscribePattern means
    logs         which partitions there are and what they hold
    fetching     one range of offsets out of its leader
    decoding     record batches into batches of Arrow
    columns,     the records' bytes into its columns, with numpy; the same in C
      _columns.c
    write_options what a write was told, and the columns of its rows
    sink         what Spark asks of it: batches and streams to write
    outlet, rows a task's rows on their way into a producer
    encoding     columns of Arrow into batches of records, many rows a step
    letters      rows that cannot be written, for a topic of such
    transactional_sink
                 exactly once: what tasks leave open and the driver ends
    markers      which batches of a stream each task has written
    dead_letters what records say in their headers that could not be written or read
    values       what the bytes of a value mean, as expressions
    value_options, value_columns
                 the same as options of a read
    msgpack_values, json_values, fitting
                 bytes into columns of a schema's types, or why not
    submitting   what `k spark-submit` hands on, and what it refuses
    shipping     this package as a zip, for executors
    jobs/        what `k spark-submit JOB` runs
    progress     how far streams are
    installation where Spark's scripts are, and what they need
    quick_start  what each Python that Spark starts runs first
    cluster      a master and workers on this machine
    standalone   the same: their words, and what they tell

Spark finds the source by itself through the top-level module `pyspark_k`, where the package is
installed or on PYTHONPATH; `register` is for where it is neither.  It takes the extra `spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let this session know the format `k`."""
    from kcli.spark.source import KafkaSource

    spark.dataSource.register(KafkaSource)
