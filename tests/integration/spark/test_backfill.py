"""Test a backfill of many partitions with few records each: the short form of
tests/soak/soak_spark_backfill.py."""

from __future__ import annotations

from tests.support import frames
from tests.support.brokers import create_topic
from tests.support.spark_backfill import fill

PARTITIONS, RECORDS = 500, 2


def test_a_backfill_of_many_partitions_takes_in_all_of_them(spark, broker, tmp_path):
    create_topic(broker.address, "backfill", PARTITIONS)
    fill(broker.address, "backfill", PARTITIONS, RECORDS, batch=RECORDS, size=10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": PARTITIONS * RECORDS}
    frame = frames.of(spark.readStream, broker, "backfill", **options).load()
    found: list[tuple[int, int]] = []

    def collect(batch, _id: int) -> None:
        found.extend((row.partition, row.offset) for row in batch.collect())

    query = (
        frame.select("partition", "offset")
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert sorted(found) == [(p, offset) for p in range(PARTITIONS) for offset in range(RECORDS)]
