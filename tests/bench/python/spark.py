"""A Spark application that runs one job after another, as it is told, in one session.

    python -m tests.bench.python.spark FORMAT DIRECTORY [JARS]

FORMAT is `k` or Spark's own `kafka`, for which JARS are.  A line of JSON on stdin is a job: its
name in JOBS and its arguments.  A line on stdout is what it took: seconds, and the CPU seconds
of all processes, which are this one, the JVM and Spark's Python workers.
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
            # As `k spark-submit` has it.
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
        """Where columns are picked, each source is told so in its way."""
        reader = self.spark.readStream if options.pop("streams", False) else self.spark.read
        reader = reader.format(self.form).options(**{k: str(v) for k, v in options.items()})
        reader = reader.option("kafka.bootstrap.servers", address).option("subscribe", topic)
        if schema and self.form == "k":
            return reader.schema(schema).load()
        frame = reader.option("startingOffsets", "earliest").load()
        return frame.select(*(part.split()[0] for part in schema.split(", "))) if schema else frame

    # The jobs: each ends when its rows are where they go, and may have something to tell.

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
        """Values of 200 bytes with keys of up to 8."""
        frame = self.spark.range(0, rows, 1, 4).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(rpad(cast(id as string), {VALUE_BYTES}, uuid()) as binary) as value",
        )
        self.save(frame, address, topic, **options)

    def windows(self, address: str, topic: str, to: str) -> None:
        """JSON into sums by minute and account, as JSON."""
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
        """The module that takes record batches apart."""
        from kcli.spark.decoding import decode

        return decode.__module__


def main(form: str, directory: str, jars: str = "") -> None:
    # What the JVM has to say is not for who reads the answers.
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
