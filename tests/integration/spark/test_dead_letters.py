"""Test rows that cannot be written: they are refused, or sent to dlqTopic with the reason in
headers.

Tasks run as in Spark, but without Spark.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from kcli.spark.options import batch_options
from kcli.spark.range_fetcher import read_ranges
from kcli.spark.row_producer import WriteFailed
from kcli.spark.sink import write
from kcli.spark.transactional_sink import TaskMessage, WriteTask, commit, write_in_transaction
from kcli.spark.write_options import WriteOptions, write_options
from tests.support.brokers import create_topic, until
from tests.support.frames import planned

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LONG = b"x" * 5000


@pytest.fixture
def dlq(broker, topic) -> str:
    return create_topic(broker.address, f"{topic}-dlq", max_message_bytes=3000)


def options_of(broker, **options: object) -> WriteOptions:
    given = {"kafka.bootstrap.servers": broker.address, "kafka.max.block.ms": "20000"}
    return write_options(given | {name: str(value) for name, value in options.items()})


def rows(*rows: dict[str, object]) -> pa.RecordBatch:
    """Return a batch with all columns except the timestamp; columns missing in a row are null."""
    kinds = {
        "value": pa.binary(),
        "key": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": HEADERS,
    }
    return pa.record_batch(
        {name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    )


COLUMNS = ("value", "key", "topic", "partition", "headers")


def read(broker, topic: str) -> list[tuple]:
    """Return key, value and headers of each committed record."""
    options = batch_options(
        {
            "kafka.bootstrap.servers": broker.address,
            "subscribe": topic,
            "kafka.isolation.level": "read_committed",
        }
    )
    wanted = ["key", "value", "headers"]
    return sorted(
        (row["key"] or b"", row["value"], [(h["key"], h["value"]) for h in row["headers"] or ()])
        for _, batch in read_ranges(options, planned(options), wanted)
        for row in batch.to_pylist()
    )


def mixed(topic: str) -> pa.RecordBatch:
    own = [{"key": "own", "value": b"1"}]
    return rows(
        {"key": "0", "value": b"good", "topic": topic, "headers": own},
        {"key": "1", "value": LONG, "topic": topic, "headers": own},
        {"key": "2", "value": b"no topic"},
        {"key": "3", "value": b"far", "topic": topic, "partition": 9},
        {"key": "4", "value": b"odd", "topic": "a topic?"},
        {
            "key": "5",
            "value": b"nameless",
            "topic": topic,
            "headers": [{"key": None, "value": b""}],
        },
        {"key": "6", "value": b"good too", "topic": topic, "partition": 1},
    )


@pytest.mark.parametrize("exactly_once", [False, True])
def test_rows_that_cannot_be_written_are_dead_letters_and_the_others_are_written(
    broker, topic, dlq, exactly_once
):
    options = options_of(
        broker,
        dlqTopic=dlq,
        exactlyOnce=exactly_once,
        **{"kafka.max.request.size": 4000, "kafka.linger.ms": 0},
    )
    if exactly_once:
        part = write_in_transaction(iter([mixed(topic)]), options, COLUMNS, WriteTask(0, topic, 0))
        assert read(broker, dlq) == read(broker, topic) == []
        commit([TaskMessage(part)], options)
        until(lambda: len(read(broker, dlq)) == 5)
    else:
        write(iter([mixed(topic)]), options, COLUMNS)
    assert [(key, value) for key, value, _ in read(broker, topic)] == [
        (b"0", b"good"),
        (b"6", b"good too"),
    ]
    letters = {key: (value, dict(headers)) for key, value, headers in read(broker, dlq)}
    told = {key: headers.pop("k.dlq.reason").decode() for key, (_, headers) in letters.items()}
    value, headers = letters[b"1"]
    assert (value, len(value) > 2000) == (LONG[: len(value)], True)
    assert headers == {
        "k.dlq.topic": topic.encode(),
        "k.dlq.value.length": b"5000",
        "own": b"1",
    }
    assert "allows at most 4000" in told[b"1"]
    assert letters[b"2"] == (b"no topic", {})
    assert "null topic" in told[b"2"]
    assert letters[b"3"] == (b"far", {"k.dlq.topic": topic.encode(), "k.dlq.partition": b"9"})
    assert told[b"3"] == "partition 9 does not exist; the topic has 2"
    assert letters[b"4"] == (b"odd", {"k.dlq.topic": b"a topic?"})
    assert "a topic?" in told[b"4"]
    assert told[b"5"] == "a header's key is null"


def test_each_dead_letter_has_the_reason_of_its_own_row(broker, topic, dlq):
    options = options_of(broker, topic=topic, dlqTopic=dlq, **{"kafka.max.request.size": 4000})
    sizes, numbers = (5000, 6000, 7000), (7, 8, 9)
    batch = rows(
        *({"key": f"0{size}", "value": b"x" * size} for size in sizes),
        *({"key": f"1{number}", "value": b"far", "partition": number} for number in numbers),
    )
    write(iter([batch]), options, COLUMNS)
    reasons = [dict(headers)["k.dlq.reason"].decode() for _, _, headers in read(broker, dlq)]
    found = [int(re.search(r"about (\d+) bytes", text)[1]) for text in reasons[:3]]
    assert all(size < n < size + 200 for size, n in zip(sizes, found, strict=True))
    assert reasons[3:] == [
        f"partition {number} does not exist; the topic has 2" for number in numbers
    ]


def test_what_only_the_broker_would_refuse_is_known_before(broker, topic, dlq):
    small = create_topic(
        broker.address, f"{topic}-small", max_message_bytes=1000, cleanup_policy="compact"
    )
    batch = rows(
        {"key": "0", "value": b"x" * 2000, "topic": small},
        {"value": b"no key", "topic": small},
        {"key": "1", "value": b"good", "topic": small},
    )
    write(iter([batch]), options_of(broker, dlqTopic=dlq), COLUMNS)
    assert read(broker, small) == [(b"1", b"good", [])]
    letters = read(broker, dlq)
    assert [value for _, value, _ in letters] == [b"no key", b"x" * 2000]
    assert b"compacted" in dict(letters[0][2])["k.dlq.reason"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"value": b"x"}, "null topic present in the data"),
        (
            {"value": b"x", "topic": "t", "partition": 9},
            "partition 9 does not exist; the topic has 2",
        ),
        ({"value": b"x" * (1 << 20), "topic": "t"}, "allows at most 1048576"),
        ({"value": b"x", "topic": "a topic?"}, "a topic?"),
    ],
)
def test_without_a_topic_for_them_they_are_refused(broker, topic, row, told):
    row = row | ({"topic": topic} if row.get("topic") == "t" else {})
    with pytest.raises(WriteFailed) as refused:
        write(iter([rows(row)]), options_of(broker), COLUMNS)
    assert told in str(refused.value)
    assert "option dlqTopic" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert read(broker, topic) == []


def test_what_the_broker_refuses_fails_the_task(broker, topic):
    small = create_topic(broker.address, f"{topic}-small", max_message_bytes=1000)
    batch = rows({"value": b"x", "topic": small}, {"value": b"x" * 2000, "topic": small})
    with pytest.raises(WriteFailed, match=f"write to {small}-0 failed: message_too_large"):
        write(iter([batch]), options_of(broker), COLUMNS)


def test_a_task_without_rows_asks_nobody():
    nobody = write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    assert write(iter([]), nobody, COLUMNS).rows == 0


def test_records_pass_interceptors_and_partitioners_of_the_users(broker, topic):
    rules = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    batch = rows(*({"key": "k", "value": b"%d" % n, "topic": topic} for n in range(4)), {})
    options = options_of(broker, dlqTopic=f"{topic}-dlq", **rules)
    write(iter([batch]), options, COLUMNS)
    assert [value for _, value, _ in read(broker, topic)] == [b"0", b"1", b"2", b"3"]
    reading = batch_options({"kafka.bootstrap.servers": broker.address, "subscribe": topic})
    assert [(r.start, r.end) for r in planned(reading)] == [(0, 2), (0, 2)]
