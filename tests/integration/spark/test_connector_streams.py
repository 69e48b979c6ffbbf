"""Test that streams of `format("k")` and of Spark's own `format("kafka")` read the same rows in the
same micro-batches, for each option, and can continue from each other's checkpoints.

$records and the like are topics of tests/support/connector_topics.py.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, functions

from kcli.spark.offset_ranges import DataLost
from kcli.spark.source import KafkaSource
from kserver.errors import ConfigError
from tests.support.brokers import create_topic, grow_topic
from tests.support.connector_topics import filled_in
from tests.support.frames import T0, delete_before, fill, refusal

FORMATS = ("kafka", "k")
BOOTSTRAP = "kafka.bootstrap.servers"
EARLIEST = {"startingOffsets": "earliest"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
RUN_S = 180

STREAMS = (
    {"subscribe": "$times"},
    {"subscribe": "$records", "includeHeaders": "true"} | EARLIEST,
    {"subscribe": "$transactions,$compacted"} | EARLIEST | COMMITTED,
    {
        "subscribePattern": "$prefix-t(rimmed|imes)",
        "startingTimestamp": f"{T0 + 9}",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    {"assign": '{"$times":[1]}', "startingOffsetsByTimestamp": f'{{"$times":{{"1":{T0 + 5}}}}}'},
    {
        "subscribe": "$times",
        "startingOffsets": '{"$times":{"0":-1,"1":-2}}',
        "minOffsetsPerTrigger": "1000",
        "maxTriggerDelay": "1h",
    },
    {
        "subscribe": "$trimmed",
        "startingOffsets": '{"$trimmed":{"0":1}}',
        "failOnDataLoss": "false",
    },
)
LIMITED = {"subscribe": "$times", "maxOffsetsPerTrigger": "10", "minPartitions": "4"} | EARLIEST
"""The limit divides without remainder, because Spark's own source rounds down."""
EMPTY = ({"subscribe": "$times"},)

QUICKLY = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
REFUSED_STREAMS = (
    {"subscribe": "$times", "endingOffsets": "latest"},
    {"subscribe": "$times", "endingTimestamp": f"{T0}"},
    {"subscribe": "$times", "endingOffsetsByTimestamp": f'{{"$times":{{"0":{T0},"1":{T0}}}}}'},
    {"subscribe": "$times", "startingOffsets": '{"$times":{"0":3}}'},
    {"subscribe": "$times", "startingTimestamp": f"{T0 + 9}"},
    {"subscribe": "$times", "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
    {"subscribe": "$times", "maxTriggerDelay": "soon", "minOffsetsPerTrigger": "6"},
    {"subscribe": "$times", "maxOffsetsPerTrigger": "many"},
    {"subscribe": "$trimmed", "startingOffsets": '{"$trimmed":{"0":1}}'},
)

REFUSED_BY_OURS_ALONE = ({"subscribe": "$times", "endingTimestamp": f"{T0}"},)
"""Spark's own source ignores the option, and does not end."""


class Started:
    """A query that by default reads the available data; `rows` has the rows of each batch that is
    not empty."""

    def __init__(self, frame, checkpoint: Path, **trigger: str) -> None:
        self.rows: list[list[tuple]] = []
        self._query = (
            frame.writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def caught_up(self) -> list[tuple]:
        """Return all rows up to the current end, of a query that continues to run."""
        self._query.processAllAvailable()
        return sorted((row for rows in self.rows for row in rows), key=lambda row: row[2:5])

    def stop(self) -> None:
        self._query.stop()

    def _collect(self, batch, _id: int) -> None:
        rows = sorted(map(tuple, batch.collect()), key=lambda row: row[2:5])
        self.rows += [rows] if rows else []

    def finished(self) -> tuple[list[list[tuple]], list[dict]]:
        """Wait for the end; return the rows and each source's end offsets, without the topic ids
        that ours adds."""
        assert self._query.awaitTermination(RUN_S)
        sources = self._query.lastProgress["sources"]
        ends = [json.loads(source["endOffset"]) for source in sources]
        return self.rows, [{topic: at for topic, at in end.items() if at} for end in ends]


def stream(spark, either, format: str, options: dict[str, str]):
    reader = spark.readStream.format(format).option(BOOTSTRAP, either.address)
    return reader.options(**options).load()


def test_both_read_the_same_micro_batches(spark, either, topics, tmp_path):
    """Each source runs all cases in one query with one micro-batch; the end offsets are compared
    too."""
    queries = []
    for format in FORMATS:
        every = []
        for number, given in enumerate(STREAMS):
            source = stream(spark, either, format, filled_in(given, topics))
            if "headers" not in source.columns:
                source = source.withColumn("headers", functions.lit(None))
            every.append(source.withColumn("case", functions.lit(number)))
        queries.append(Started(functools.reduce(DataFrame.unionAll, every), tmp_path / format))
    ((theirs,), their_ends), ((ours,), our_ends) = (query.finished() for query in queries)
    for number, given in enumerate(STREAMS):
        of_ours, of_theirs = ([row for row in rows if row[-1] == number] for rows in (ours, theirs))
        assert of_ours == of_theirs, given
        assert our_ends[number] == their_ends[number], given
        assert bool(of_ours) != (given in EMPTY), given


def test_both_take_in_as_much_at_once(spark, either, topics, tmp_path):
    options = filled_in(LIMITED, topics)
    theirs, ours = (
        Started(stream(spark, either, format, options), tmp_path / format) for format in FORMATS
    )
    assert ours.finished() == theirs.finished()
    assert [len(rows) for rows in ours.rows] == [10, 10]


def test_both_refuse_the_same_streams(spark, either, topics, tmp_path):
    """Our source is called directly, in the way Spark does."""
    taken = []
    for number, given in enumerate(REFUSED_STREAMS):
        options = QUICKLY | filled_in(given, topics)
        source = KafkaSource({BOOTSTRAP: either.address} | options)
        with pytest.raises((ConfigError, DataLost)):
            begin_in_here(source)
        try:
            Started(stream(spark, either, "kafka", options), tmp_path / str(number)).finished()
        except Exception:
            continue
        taken.append(given)
    assert taken == [given for given in REFUSED_STREAMS if given in REFUSED_BY_OURS_ALONE]


def begin_in_here(source: KafkaSource) -> None:
    """Make all calls that Spark makes in its processes, up to the rows of the first micro-batch."""
    reader = source.streamReader(source.schema())
    try:
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        for task in reader.partitions(begin, end):
            list(reader.read(task))
    finally:
        reader.stop()


@pytest.mark.parametrize("first", FORMATS)
def test_a_query_of_one_goes_on_as_the_others(spark, either, tmp_path, first):
    second = next(format for format in FORMATS if format != first)
    topic = create_topic(either.address, f"moves-{first}-{tmp_path.name}", partitions=12)

    def run(format: str) -> tuple[list[list[str]], list[dict]]:
        frame = stream(spark, either, format, {"subscribe": topic} | EARLIEST)
        batches, end = Started(frame, tmp_path).finished()
        return [[bytes(row[1]).decode() for row in rows] for rows in batches], end

    fill(either, topic, *range(12))
    ((rows,), _) = run(first)
    assert len(rows) == 66
    fill(either, topic, *[2] * 12, start=20)
    new = [f"{p}:{n}" for p in range(12) for n in (20, 21)]
    assert run(second) == ([new], [{topic: {str(p): p + 2 for p in range(12)}}])
    # As if it had been killed before it committed that batch; newer records follow in the next
    # batch.
    last = max(int(path.name) for path in (tmp_path / "commits").glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "commits" / name).unlink()
    fill(either, topic, 1, start=30)
    assert run(first)[0] == [new, ["0:30"]]


def test_both_lose_the_same_or_tell_of_it(spark, either, tmp_path):
    topic = create_topic(either.address, f"loses-{tmp_path.name}-{either.address[-5:]}")

    def run(format: str, **options: str) -> list[str]:
        frame = stream(spark, either, format, {"subscribe": topic} | EARLIEST | options)
        batches, _ = Started(frame, tmp_path / format).finished()
        return [bytes(row[1]).decode() for rows in batches for row in rows]

    fill(either, topic, 3)
    for format in FORMATS:
        assert run(format) == ["0:0", "0:1", "0:2"]
    fill(either, topic, 7, start=3)
    delete_before(either, topic, 6)
    for format in FORMATS:
        assert refusal(functools.partial(run, format))
        assert run(format, failOnDataLoss="false") == [f"0:{n}" for n in range(6, 10)]


def test_both_find_what_is_new(spark, either, tmp_path):
    """New partitions and topics are found while a query runs."""
    prefix = f"{tmp_path.name}-{either.address[-5:]}"
    first = create_topic(either.address, f"{prefix}-a")
    fill(either, first, 2)
    options = {"subscribePattern": f"{prefix}-.*"} | EARLIEST
    at_once = {"processingTime": "0 seconds"}
    queries = [
        Started(stream(spark, either, format, options), tmp_path / format, **at_once)
        for format in FORMATS
    ]
    found = [query.caught_up() for query in queries]
    assert found[0] == found[1]
    grow_topic(either.address, first, 3)
    second = create_topic(either.address, f"{prefix}-b")
    fill(either, first, 1, 0, 2, start=2)
    fill(either, second, 3)
    theirs, ours = (query.caught_up() for query in queries)
    assert ours == theirs
    assert len(ours) == 2 + 3 + 3
    for query in queries:
        query.stop()
