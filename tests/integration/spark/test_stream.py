"""`spark.readStream.format("k")` in a real Spark: offsets as checkpoints, how much at once."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from kcli.client.admin import NewPartitions
from kcli.spark.options import stream_options
from kcli.spark.progress import lag
from kcli.spark.source import KafkaSource
from kcli.spark.stream import StreamReader
from kserver.errors import ConfigError
from tests.support.frames import admin_of, fill, made_anew, of, refusal, run


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
    assert first == {topic: {"0": -2, "1": -2}}
    # The first does not wait.
    end = reader.latestOffset(first, limit)
    assert end == {topic: {"0": 3, "1": 0}}
    fill(broker, topic, 4, start=3)
    assert reader.latestOffset(end, limit) == end
    fill(broker, topic, 5, start=7)
    assert reader.latestOffset(end, limit) == {topic: {"0": 9, "1": 0}}
    assert reader.latestOffset(end, ReadAllAvailable()) == {topic: {"0": 12, "1": 0}}
    assert reader.reportLatestOffset() == {topic: {"0": 12, "1": 0}}
    reader.stop()
    impatient = StreamReader(stream_options(start | options | {"maxTriggerDelay": "0ms"}), ())
    assert impatient.latestOffset(first, limit) == {topic: {"0": 6, "1": 0}}
    assert impatient.latestOffset({topic: {"0": 11, "1": 0}}, limit) == {topic: {"0": 12, "1": 0}}
    impatient.stop()


def test_a_stream_goes_on_where_its_checkpoint_ends(spark, broker, topic, tmp_path):
    fill(broker, topic, 3, 2)
    frame = of(spark.readStream, broker, topic, startingOffsets="earliest").load()
    found, progress = run(frame, tmp_path)
    assert found == ["0:0", "0:1", "0:2", "1:0", "1:1"]
    assert json.loads(progress[-1]["sources"][0]["endOffset"]) == {topic: {"0": 3, "1": 2}}
    assert json.loads(progress[-1]["sources"][0]["latestOffset"]) == {topic: {"0": 3, "1": 2}}
    assert run(frame, tmp_path)[0] == []
    fill(broker, topic, 1, 0, start=3)
    assert run(frame, tmp_path)[0] == ["0:3"]
    last = sorted((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))[-1]
    assert json.loads(last.read_text().splitlines()[-1]) == {topic: {"0": 4, "1": 2}}


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
    assert json.loads(progress[0]["sources"][0]["endOffset"]) == {topic: {"0": 12, "1": 4}}
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
    """Though records come as fast as they are read."""
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


def test_a_topic_that_was_made_anew_is_data_lost(spark, broker, topic, tmp_path):
    fill(broker, topic, 3)
    options = {"startingOffsets": "earliest"}
    frame = of(spark.readStream, broker, topic, **options).load()
    assert len(run(frame, tmp_path)[0]) == 3
    made_anew(broker, topic)
    fill(broker, topic, 1)
    told = refusal(lambda: run(frame, tmp_path))
    assert f"partition {topic}-0 ended at 3 and ends at 1 now" in told
    options |= {"failOnDataLoss": False, "maxOffsetsPerTrigger": 100}
    goes_on = of(spark.readStream, broker, topic, **options).load()
    assert run(goes_on, tmp_path)[0] == []
    fill(broker, topic, 2, start=1)
    assert run(goes_on, tmp_path)[0] == ["0:1", "0:2"]


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
    assert reader.latestOffset(checkpoint, limit) == {topic: {"0": 1, "1": 0}}
    fill(broker, topic, 0, 2)
    assert reader.latestOffset(checkpoint, limit) == {topic: {"0": 1, "1": 2}}
    reader.stop()


def test_a_topic_that_goes_or_is_made_anew_under_a_running_query_is_noticed(broker, topic):
    """However much it holds then: by its id."""
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    fill(broker, topic, 2)
    readers = [
        StreamReader(stream_options(options | {"failOnDataLoss": fails}), ())
        for fails in ("true", "false")
    ]
    at = {topic: {"0": 2, "1": 0}}
    for reader in readers:
        assert reader.latestOffset(at, ReadAllAvailable()) == at
    made_anew(broker, topic)
    fill(broker, topic, 5, 1)
    told = refusal(lambda: readers[0].latestOffset(at, ReadAllAvailable()))
    assert f"topic {topic} was made anew" in told
    end = readers[1].latestOffset(at, ReadAllAvailable())
    assert end == {topic: {"0": 5, "1": 1}}
    with admin_of(broker) as admin:
        admin.delete_topics([topic])
    told = refusal(lambda: readers[0].latestOffset(at, ReadAllAvailable()))
    assert f"partition {topic}-0 is gone" in told
    assert readers[1].latestOffset(end, ReadAllAvailable()) == {}
    for reader in readers:
        reader.stop()


def test_a_stream_is_refused_an_end():
    source = KafkaSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "endingOffsets": "x"})
    with pytest.raises(ConfigError, match="option endingOffsets is for batches"):
        source.streamReader(source.schema())
