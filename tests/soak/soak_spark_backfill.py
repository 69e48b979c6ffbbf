"""Test a large backfill to Parquet, 10 M records in 500 partitions, in bounded memory.

    pytest -s tests/soak/soak_spark_backfill.py
    RECORDS=1000000 pytest -s tests/soak/soak_spark_backfill.py

The job `land` reads 500,000 offsets at a time, with two processors and 1 GB of heap.
"""

from __future__ import annotations

import os
import time

import pyarrow.dataset as ds
import pytest

from tests.support import brokers, tools
from tests.support.brokers import create_topic
from tests.support.spark_backfill import Memory, fill
from tests.support.spark_harness import Pipeline, listed

RECORDS = int(os.environ.get("RECORDS", "10000000"))
PARTITIONS = 500
BATCH, VALUE_BYTES = 500, 100
AT_ONCE = 500_000
PATIENCE_S = 7200
MAX_JVM_MB, MAX_PYTHON_MB = 2000, 400
"""Limits for the JVM, whose heap is 1 GB, and for each Python worker."""


@pytest.mark.soak
def test_a_backfill_of_many_partitions_stays_within_its_memory(tmp_path):
    tools.require("java")
    path, checkpoint = tmp_path / "landed", tmp_path / "checkpoint"
    # The records' timestamps are years old, so retention would delete them.
    keep = {"log.retention.ms": -1}
    with brokers.running(brokers.KINDS[0], tmp_path / "broker", keep) as broker:
        create_topic(broker.address, "year", PARTITIONS)
        began = time.monotonic()
        fill(broker.address, "year", PARTITIONS, RECORDS // PARTITIONS, BATCH, VALUE_BYTES)
        print(f"filled with {RECORDS:,} records in {time.monotonic() - began:.0f} s")
        words = [
            *("--master", "local[2]", "--driver-memory", "1g"),
            *("--conf", "spark.ui.enabled=false"),
            *("land", "--topics", "year", "--max-offsets", str(AT_ONCE)),
            *("--path", str(path), "--checkpoint", str(checkpoint)),
            *("--bootstrap-server", broker.address),
        ]
        pipeline = Pipeline(tmp_path / "driver", lambda _: words, [checkpoint])
        began = time.monotonic()
        with pipeline, Memory(pipeline.processes) as memory:
            pipeline.wait(PATIENCE_S)
        seconds = time.monotonic() - began
    print(f"{RECORDS / seconds:,.0f} rows/s, {seconds:.0f} s with Spark's start; {memory}")
    table = ds.dataset(listed(path)).to_table(columns=["partition", "offset"])
    counts = table.group_by(["partition", "offset"]).aggregate([([], "count_all")])
    assert len(table) == len(counts) == RECORDS
    assert memory.one["JVM"] < MAX_JVM_MB
    assert memory.one["Python workers"] < MAX_PYTHON_MB
