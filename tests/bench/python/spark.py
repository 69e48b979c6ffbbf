"""A Spark application that runs jobs, one after another, in one session.

    python -m tests.bench.python.spark FORMAT DIRECTORY [JARS]

FORMAT is `k` or Spark's own `kafka`, which needs JARS. Each line of JSON on stdin is a job: the
name of a method of `Application` and its arguments. Each line on stdout is its result: seconds, and
the CPU seconds of all processes (this one, the JVM and Spark's Python workers).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.tree import tree_cpu_s

VALUE_BYTES = 200
JSON = "account int, amount double, at timestamp, note string"
NOOP = "noop"


class Application:
    def __init__(self, form: str, directory: str, jars: str = "") -> None:
        from pyspark.sql import SparkSession

        self.form = form
        self.directory = Path(directory)
        self.numbers = itertools.count()
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "2g")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.local.dir", str(self.directory))
            .config("spark.sql.warehouse.dir", str(self.directory / "warehouse"))
            # As `k spark-submit` sets it.
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.python.filterPushdown.enabled", "true")
        )
        if jars:
            builder = builder.config("spark.jars", jars)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def fresh(self) -> str:
        return str(self.directory / f"{self.form}-{next(self.numbers)}")

    def read(self, address: str, topic: str, schema: str = "", **options: object) -> Any:
        """Return a frame of the topic; columns are selected in the way of each source."""
        reader = self.spark.readStream if options.pop("streams", False) else self.spark.read
        reader = reader.format(self.form).options(**{k: str(v) for k, v in options.items()})
        reader = reader.option("kafka.bootstrap.servers", address).option("subscribe", topic)
        if schema and self.form == "k":
            return reader.schema(schema).load()
        frame = reader.option("startingOffsets", "earliest").load()
        return frame.select(*(part.split()[0] for part in schema.split(", "))) if schema else frame

    # The jobs: each ends when its rows are written, and may return a value.

    def count(self, address: str, topic: str) -> None:
        self.read(address, topic).count()

    def columns(self, address: str, topic: str) -> None:
        self.read(address, topic).write.format(NOOP).mode("overwrite").save()

    def two(self, address: str, topic: str) -> None:
        frame = self.read(address, topic, "value binary, offset long")
        frame.write.format(NOOP).mode("overwrite").save()

    def parquet(self, address: str, topic: str) -> None:
        where = self.fresh()
        self.read(address, topic).write.parquet(where)
        shutil.rmtree(where)

    def available(self, address: str, topic: str, a_trigger: int) -> None:
        where = self.fresh()
        frame = self.read(
            address,
            topic,
            streams=True,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=a_trigger,
        )
        query = (
            frame.writeStream.format("parquet")
            .option("path", f"{where}/data")
            .option("checkpointLocation", f"{where}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        shutil.rmtree(where)

    def write(self, address: str, topic: str, rows: int, **options: object) -> None:
        """Write values of 200 bytes with keys of up to 8."""
        frame = self.spark.range(0, rows, 1, 4).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(rpad(cast(id as string), {VALUE_BYTES}, uuid()) as binary) as value",
        )
        self.save(frame, address, topic, **options)

    def windows(self, address: str, topic: str, to: str) -> None:
        """Aggregate JSON to sums by minute and account, and write them as JSON."""
        import pyspark.sql.functions as f

        parsed = self.read(address, topic, "value binary").select(
            f.from_json(f.col("value").cast("string"), JSON).alias("order")
        )
        sums = (
            parsed.groupBy(f.window("order.at", "1 minute"), "order.account")
            .agg(f.count("*").alias("orders"), f.sum("order.amount").alias("amount"))
            .select(f.to_json(f.struct("window.start", "account", "orders", "amount")))
            .toDF("value")
        )
        self.save(sums, address, to)

    def save(self, frame: Any, address: str, topic: str, **options: object) -> None:
        writer = frame.write.format(self.form).option("kafka.bootstrap.servers", address)
        writer = writer.options(**{name: str(value) for name, value in options.items()})
        writer.option("topic", topic).mode("append").save()

    def first(self, address: str, topic: str) -> None:
        self.read(address, topic).take(1)

    def decoder(self) -> str:
        """Return the name of the module that decodes record batches."""
        from kcli.spark.batch_decoder import decode

        return decode.__module__


def main(form: str, directory: str, jars: str = "") -> None:
    # Keep the JVM's output out of the results: it goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    application = Application(form, directory, jars)
    for line in sys.stdin:
        told = json.loads(line)
        job = getattr(application, told.pop("job"))
        before, began = tree_cpu_s(os.getpid()), time.perf_counter()
        found = {
            "found": job(**told),
            "seconds": time.perf_counter() - began,
            "cpu_s": tree_cpu_s(os.getpid()) - before,
        }
        print(json.dumps(found), file=answers)
    application.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
