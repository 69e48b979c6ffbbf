"""Test `spark.readStream.format("k")` in a real Spark: offsets in checkpoints, and the size of
micro-batches."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from kcli.client.admin.admin import NewPartitions
from kcli.spark.options import stream_options
from kcli.spark.progress import lag
from kcli.spark.source import KafkaSource
from kcli.spark.stream import StreamReader
from kserver.errors import ConfigError
from tests.support.frames import admin_of, fill, made_anew, of, refusal, run


def without_ids(offset: dict) -> dict:
    return {topic: partitions for topic, partitions in offset.items() if partitions}


def test_a_micro_batch_waits_for_its_least_or_its_delay(broker, topic):
    fill(broker, topic, 3)
    options = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "6", "maxTriggerDelay": "1h"}
    start = {"kafka.bootstrap.servers": broker.address, "subscribe": topic} | {
        "startingOffsets": "earliest"
    }
    reader = StreamReader(stream_options(start | options), ())
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    first = reader.initialOffset()
    assert without_ids(first) == {topic: {"0": -2, "1": -2}}
    # The first micro-batch does not wait.
    end = reader.latestOffset(first, limit)
    assert without_ids(end) == {topic: {"0": 3, "1": 0}}
    fill(broker, topic, 4, start=3)
    assert reader.latestOffset(end, limit) == end
    fill(broker, topic, 5, start=7)
    assert without_ids(reader.latestOffset(end, limit)) == {topic: {"0": 9, "1": 0}}
    assert without_ids(reader.latestOffset(end, ReadAllAvailable())) == {topic: {"0": 12, "1": 0}}
    assert reader.reportLatestOffset() == {topic: {"0": 12, "1": 0}}
    reader.stop()
    impatient = StreamReader(stream_options(start | options | {"maxTriggerDelay": "0ms"}), ())
    assert without_ids(impatient.latestOffset(first, limit)) == {topic: {"0": 6, "1": 0}}
    assert without_ids(impatient.latestOffset({topic: {"0": 11, "1": 0}}, limit)) == {
        topic: {"0": 12, "1": 0}
    }
    impatient.stop()


def test_a_stream_goes_on_where_its_checkpoint_ends(spark, broker, topic, tmp_path):
    fill(broker, topic, 3, 2)
    frame = of(spark.readStream, broker, topic, startingOffsets="earliest").load()
    found, progress = run(frame, tmp_path)
    assert found == ["0:0", "0:1", "0:2", "1:0", "1:1"]
    assert without_ids(json.loads(progress[-1]["sources"][0]["endOffset"])) == {
        topic: {"0": 3, "1": 2}
    }
    assert json.loads(progress[-1]["sources"][0]["latestOffset"]) == {topic: {"0": 3, "1": 2}}
    assert run(frame, tmp_path)[0] == []
    fill(broker, topic, 1, 0, start=3)
    assert run(frame, tmp_path)[0] == ["0:3"]
    last = sorted((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))[-1]
    assert without_ids(json.loads(last.read_text().splitlines()[-1])) == {topic: {"0": 4, "1": 2}}


def test_what_latest_was_is_decided_once(spark, broker, topic, tmp_path):
    fill(broker, topic, 3)
    frame = of(spark.readStream, broker, topic).load()
    assert run(frame, tmp_path)[0] == []
    # As if the query had been killed before it committed its first batch.
    for file in (tmp_path / "commits").iterdir():
        file.unlink()
    fill(broker, topic, 2, start=3)
    assert run(frame, tmp_path)[0] == ["0:3", "0:4"]


def test_a_micro_batch_takes_in_no_more_than_it_may(spark, broker, topic, tmp_path):
    fill(broker, topic, 30, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 16}
    found, progress = run(of(spark.readStream, broker, topic, **options).load(), tmp_path)
    assert len(found) == 40
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [16, 16, 8]
    assert without_ids(json.loads(progress[0]["sources"][0]["endOffset"])) == {
        topic: {"0": 12, "1": 4}
    }
    assert [lag(batch) for batch in progress[:3]] == [24, 8, 0]


def test_a_run_with_available_now_takes_all_however_little_it_is(spark, broker, topic, tmp_path):
    fill(broker, topic, 2)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 1000}
    assert len(run(of(spark.readStream, broker, topic, **options).load(), tmp_path)[0]) == 2
    fill(broker, topic, 1, start=2)
    assert run(of(spark.readStream, broker, topic, **options).load(), tmp_path)[0] == ["0:2"]


def test_a_run_with_available_now_ends_at_what_was_there_when_it_began(
    spark, broker, topic, tmp_path
):
    """Even if records arrive as fast as they are read."""
    fill(broker, topic, 3, 1)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 2}
    frame = of(spark.readStream, broker, topic, **options).load()
    coming = iter(range(3, 9))

    def more_comes(_id: int) -> None:
        if (n := next(coming, None)) is not None:
            fill(broker, topic, 1, 1, start=n)

    found, _ = run(frame, tmp_path, after_each=more_comes)
    assert found == ["0:0", "0:1", "0:2", "1:0"]
    came = next(coming) - 3
    assert came > 1, "more came while there was something left to read"
    rest = [f"0:{3 + n}" for n in range(came)] + [f"1:{3 + n}" for n in range(came)]
    assert run(frame, tmp_path)[0] == rest


def test_new_partitions_are_read_from_their_beginning(spark, broker, topic, tmp_path):
    fill(broker, topic, 1)
    frame = of(spark.readStream, broker, topic).load()
    assert run(frame, tmp_path)[0] == []
    with admin_of(broker) as admin:
        admin.create_partitions({topic: NewPartitions(3)})
    fill(broker, topic, 0, 0, 2)
    assert run(frame, tmp_path)[0] == ["2:0", "2:1"]


@pytest.mark.parametrize("records", [1, 5])
def test_a_topic_created_again_between_two_runs_is_data_lost(
    spark, broker, topic, tmp_path, records
):
    """Whether it has fewer records than the checkpoint has read, or more."""
    fill(broker, topic, 3)
    options = {"startingOffsets": "earliest"}
    frame = of(spark.readStream, broker, topic, **options).load()
    assert len(run(frame, tmp_path)[0]) == 3
    made_anew(broker, topic)
    fill(broker, topic, records, start=10)
    told = refusal(lambda: run(frame, tmp_path))
    assert f"topic {topic} was deleted and created again" in told
    options |= {"failOnDataLoss": False, "maxOffsetsPerTrigger": 100}
    goes_on = of(spark.readStream, broker, topic, **options).load()
    assert run(goes_on, tmp_path)[0] == [f"0:{n}" for n in range(10, 10 + records)]
    fill(broker, topic, 2, start=30)
    assert run(frame, tmp_path)[0] == ["0:30", "0:31"]


def test_a_batch_that_reads_a_topic_from_its_beginning_again_does_so_after_a_kill(broker, topic):
    options = stream_options(
        {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "failOnDataLoss": "false"}
    )
    fill(broker, topic, 3)
    readers = [StreamReader(options, ()) for _ in range(3)]
    start = readers[0].latestOffset({topic: {"0": 0, "1": 0}}, ReadAllAvailable())
    made_anew(broker, topic)
    fill(broker, topic, 5)
    end = readers[1].latestOffset(start, ReadMaxRows(4))
    for reader in readers[1:]:
        (task,) = reader.partitions(start, end)
        ((wanted,),) = [task.ranges]
        assert (wanted.start, wanted.end) == (0, 4)
        assert not reader.partitions(end, end)
    for reader in readers:
        reader.stop()


@pytest.mark.parametrize(
    "limit",
    [ReadAllAvailable(), ReadMaxRows(5), ReadMinRows(2)],
    ids=lambda one: type(one).__name__,
)
def test_a_log_that_ends_before_the_checkpoint_is_read_from_its_end_on(broker, topic, limit):
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    fill(broker, topic, 1)
    reader = StreamReader(stream_options(options | {"failOnDataLoss": "false"}), ())
    checkpoint = {topic: {"0": 3, "1": 0}}
    assert without_ids(reader.latestOffset(checkpoint, limit)) == {topic: {"0": 1, "1": 0}}
    fill(broker, topic, 0, 2)
    assert without_ids(reader.latestOffset(checkpoint, limit)) == {topic: {"0": 1, "1": 2}}
    reader.stop()


def test_a_topic_that_goes_or_is_made_anew_under_a_running_query_is_noticed(broker, topic):
    """Detected by its topic id, however many records it has then."""
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    fill(broker, topic, 2)
    readers = [
        StreamReader(stream_options(options | {"failOnDataLoss": fails}), ())
        for fails in ("true", "false")
    ]
    at = {topic: {"0": 2, "1": 0}}
    starts = [reader.latestOffset(at, ReadAllAvailable()) for reader in readers]
    assert list(map(without_ids, starts)) == [at, at]
    made_anew(broker, topic)
    fill(broker, topic, 5, 1)
    for start in (at, starts[0]):
        told = refusal(lambda start=start: readers[0].latestOffset(start, ReadAllAvailable()))
        assert f"topic {topic} was deleted and created again" in told
    for start in (at, starts[1]):
        end = readers[1].latestOffset(start, ReadAllAvailable())
        assert without_ids(end) == {topic: {"0": 5, "1": 1}}
        planned = {
            one.partition.partition: (one.start, one.end)
            for task in readers[1].partitions(start, end)
            for one in task.ranges
        }
        assert planned == {0: (0, 5), 1: (0, 1)}
    with admin_of(broker) as admin:
        admin.delete_topics([topic])
    told = refusal(lambda: readers[0].latestOffset(starts[0], ReadAllAvailable()))
    assert f"partition {topic}-0 was deleted" in told
    assert readers[1].latestOffset(end, ReadAllAvailable()) == {}
    for reader in readers:
        reader.stop()


def test_a_stream_is_refused_an_end():
    source = KafkaSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "endingOffsets": "x"})
    with pytest.raises(ConfigError, match="option endingOffsets is for batches"):
        source.streamReader(source.schema())
