"""A program for `k spark-submit`: writes one topic to sinks of several kinds, each a query of its
own.

    spark_pipelines.py '{"broker": ..., "source": ..., "most": 500, "sinks": {KIND: TARGET},
                         "checkpoints": DIRECTORY, "once": false}'

    once    true: read what is there (AvailableNow) and end; false: run until it is ended
    KIND    topic        the sink k, at least once
            exactly      the sink k, exactlyOnce
            files        Spark's own file sink
            forgetful    appends each batch to files and ignores its number: a bug that the tests
                         must find
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial

from pyspark.sql import DataFrame, SparkSession


def started(frame: DataFrame, kind: str, target: str, given: dict):
    writer = frame.writeStream.option("checkpointLocation", f"{given['checkpoints']}/{kind}")
    trigger = {"availableNow": True} if given["once"] else {"processingTime": "0 seconds"}
    writer = writer.queryName(kind).trigger(**trigger)
    if kind == "files":
        return writer.format("parquet").start(target)
    if kind == "forgetful":
        return writer.foreachBatch(partial(append, target)).start()
    writer = writer.format("k").option("kafka.bootstrap.servers", given["broker"])
    writer = writer.option("topic", target).option("exactlyOnce", str(kind == "exactly").lower())
    return writer.start()


def append(target: str, batch: DataFrame, _number: int) -> None:
    batch.write.mode("append").parquet(target)
    # As who reports what was written.
    batch.count()


def main(given: dict) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = (
        spark.readStream.format("k")
        .schema("key binary, value binary")
        .option("kafka.bootstrap.servers", given["broker"])
        .option("subscribe", given["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given["most"])
        .load()
    )
    queries = []
    for kind, target in given["sinks"].items():
        queries.append(started(frame, kind, target, given))
        # One after another: each starts a Python, for which Spark waits ten seconds.
        while queries[-1].isActive and queries[-1].lastProgress is None:
            time.sleep(0.1)
    if not given["once"]:
        spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
