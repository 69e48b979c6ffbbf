"""Test filters pushed down to the data source: the rows stay the same, and fewer are read."""

from __future__ import annotations

import random

import pytest

from tests.support.brokers import append, create_topic
from tests.support.frames import T0, of

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown(spark):
    """Function that turns filter pushdown on or off."""
    before = spark.conf.get(PUSHDOWN)
    yield lambda on: spark.conf.set(PUSHDOWN, str(on).lower())
    spark.conf.set(PUSHDOWN, before)


@pytest.fixture
def topics(broker, topic) -> list[str]:
    """Two topics of two partitions; timestamps increase, except that two of three records are an
    hour earlier."""
    names = [topic, create_topic(broker.address, f"{topic}-b", partitions=2)]
    for name in names:
        for partition in range(2):
            append(
                broker.address,
                name,
                [(T0 + 1000 * n - (3_600_000 if n % 3 else 0), None, None, ()) for n in range(12)],
                partition,
            )
    return names


def read(frame) -> tuple[list[tuple], int]:
    """Return the frame's rows, and the number of rows that the source passed to Spark."""
    rows = sorted((r.topic, r.partition, r.offset) for r in frame.collect())
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return rows, scan.metrics().get("numOutputRows").get().value()


def condition(rng: random.Random, topics: list[str]) -> str:
    kind = rng.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
    second = (T0 + 1000 * rng.randint(-1, 13)) / 1000 + rng.choice([0, 0.0005])
    return rng.choice(
        [
            f"topic {kind} '{rng.choice(topics)}'",
            f"topic like '{topics[0]}%'",
            f"partition {kind} {rng.randint(0, 2)}",
            f"partition not in (1, {rng.randint(0, 3)})",
            f"offset {kind} {rng.randint(-1, 13)}",
            f"offset in ({rng.randint(0, 5)}, {rng.randint(3, 15)})",
            f"timestamp {kind} timestamp_micros({int(second * 1_000_000)})",
            f"timestamp in (timestamp_micros({int(second * 1_000_000)}), timestamp_millis({T0}))",
            f"(offset = {rng.randint(0, 12)} or partition = 1)",
            "timestampType = 0",
            "key is null",
        ]
    )


def test_rows_are_the_same_and_fewer_are_read(spark, broker, topics, pushdown):
    rng = random.Random(7)
    frame = of(spark.read, broker, ",".join(topics)).load()
    pushdown(False)
    # Other options, so that Spark does not use the cached data for the frame itself.
    kept = of(spark.read, broker, ",".join(topics), minPartitions=1).load().cache()
    assert kept.count() == 48
    pushdown(True)
    spared = 0
    for _ in range(10):
        where = " and ".join(condition(rng, topics) for _ in range(rng.randint(1, 3)))
        rows, given = read(frame.where(where))
        expected = kept.where(where).select("topic", "partition", "offset").collect()
        assert rows == sorted(map(tuple, expected)), where
        assert len(rows) <= given <= 48, where
        spared += 48 - given
    assert spared
    kept.unpersist()


@pytest.mark.parametrize(
    ("where", "given"),
    [
        ("partition = 1", 24),
        ("offset between 3 and 5", 12),
        ("partition = 0 and offset = 7", 2),
        # The first record at or after that time has offset 6 of 12; all later ones are read.
        (f"timestamp > timestamp_millis({T0 + 5000})", 24),
        (f"timestamp > timestamp_millis({T0 + 60_000})", 0),
        (f"timestamp < timestamp_millis({T0})", 48),
        ("topic = 'none'", 0),
    ],
)
def test_what_is_not_wanted_is_not_read(spark, broker, topics, pushdown, where, given):
    pushdown(True)
    assert read(of(spark.read, broker, ",".join(topics)).load().where(where))[1] == given


def test_conditions_go_with_offsets_that_an_option_names(spark, broker, topics, pushdown):
    pushdown(True)
    frame = of(spark.read, broker, topics[0], startingTimestamp=T0 + 5000, minPartitions=4).load()
    rows, given = read(frame.where("partition = 1 and offset < 9"))
    assert rows == [(topics[0], 1, offset) for offset in (6, 7, 8)]
    assert given == 3
