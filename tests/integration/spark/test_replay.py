"""Test the jobs replay and redrive: records are sent once, in order, optionally with their original
time and partition, and at a limited rate."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from kcli.client import Blocking, Producer
from kcli.command.options import Refused
from kcli.spark.jobs.pace_server import pace_column, pacing_server
from kcli.spark.jobs.places import Place
from kcli.spark.jobs.redrive_frames import Redrive, RedriveOutcome, redriven
from kcli.spark.jobs.replay_frames import Replay, ReplayedPartition, parts, replayed
from kserver.model import TopicPartition
from tests.support.brokers import append, create_topic, stored
from tests.support.frames import T0, of, offsets
from tests.support.spark_jobs import SMALL, environment
from tests.support.terminal import on_a_terminal
from tests.support.tools import K

HEADERS = (("trace", b"7"), ("trace", None))


def fill(broker, topic: str, count: int = 30) -> None:
    """Append records to two partitions; every third has headers and no key."""
    for partition in range(2):
        records = [
            (T0 + n, None, b"%d:%d" % (partition, n), HEADERS)
            if n % 3 == 0
            else (T0 + n, b"k%d" % n, b"%d:%d" % (partition, n), ())
            for n in range(count)
        ]
        append(broker.address, topic, records, partition)


def held(broker, topic: str, partitions: int = 2) -> list[list[tuple]]:
    """Return time, key, value and headers of each record, by partition."""
    return [
        [
            (r.timestamp, r.key, r.value, r.headers)
            for batch in stored(broker, topic, partition)
            if not batch.is_control
            for r in batch.records()
        ]
        for partition in range(partitions)
    ]


def replay(broker, to: str, **changes) -> Replay:
    return Replay({"kafka.bootstrap.servers": broker.address}, to, **changes)


def test_what_has_landed_is_sent_as_it_was(spark, broker, topic, tmp_path):
    to = create_topic(broker.address, f"{topic}-to", partitions=2)
    fill(broker, topic)
    path = str(tmp_path / "landed")
    frame = of(spark.read, broker, topic, includeHeaders=True).load()
    frame.orderBy("value").repartition(3).write.parquet(path)
    asked = replay(broker, to, from_path=path, keep_timestamps=True, keep_partition=True)
    assert replayed(spark, asked) == 60
    assert held(broker, to) == held(broker, topic)
    # A part of the files, values as text, and targets that do not fit.
    start, end = Place(time_ms=T0 + 5), Place(offsets={TopicPartition(topic, 1): 20})
    some = replay(broker, to, from_path=path, start=start, end=end, topics=(topic,))
    assert parts(spark, some) == [ReplayedPartition(topic, 1, 15, 5, 19, T0 + 5, T0 + 19)]
    assert parts(spark, replay(broker, to, from_path=path, topics=("other",))) == []
    with pytest.raises(
        Refused, match=r"has values as binary, not string; .* --value, raw or string"
    ):
        replayed(spark, replay(broker, to, from_path=path, texts=True))
    narrow = create_topic(broker.address, f"{topic}-narrow")
    with pytest.raises(
        Refused, match=f"requires 2 partitions, but {narrow} has 1; .* --partitions 2"
    ):
        replayed(spark, replay(broker, narrow, from_path=path, keep_partition=True))
    with pytest.raises(Refused, match="--to names nowhere: "):
        replayed(spark, replay(broker, "nowhere", from_path=path))


def test_a_range_of_a_topic_is_sent_into_itself_at_a_rate_that_its_tasks_share(
    spark, broker, topic
):
    fill(broker, topic)
    before = held(broker, topic)
    start = Place(offsets={TopicPartition(topic, 0): 10, TopicPartition(topic, 1): -2})
    asked = replay(broker, topic, from_topic=topic, start=start, end=Place(time_ms=T0 + 25))
    assert parts(spark, asked) == [
        ReplayedPartition(topic, 0, 15, 10, 24, T0 + 10, T0 + 24),
        ReplayedPartition(topic, 1, 25, 0, 24, T0, T0 + 24),
    ]
    words = ["--from", f"topic:{topic}", "--to", topic, "--bootstrap-server", broker.address]
    words += ["--start", offsets(topic, p0=10, p1=-2), "--end", str(T0 + 25), "--rate", "300/m"]
    status, shown = on_a_terminal(
        [*K, "spark-submit", *SMALL, "replay", *words], environment=environment()
    )
    assert status == 0
    assert f"40 records sent to {topic}, ".encode() in shown
    # Spark shows progress of stages that take longer than half a second.
    assert b"[Stage " in shown
    after = held(broker, topic)
    new = [record for old, now in zip(before, after, strict=True) for record in now[len(old) :]]
    assert sorted(r[1:] for r in new if r[1]) == sorted(
        r[1:] for r in before[0][10:25] + before[1][:25] if r[1]
    )
    # At this rate it takes 7.8 s, but records due before the sending worker has started are sent at
    # once, which is some seconds' worth on a busy machine.
    times = [time for time, *_ in new]
    assert max(times) - min(times) >= 1_000


def test_tasks_that_ask_one_pace_are_no_faster_together():
    chunks = [pa.array([b"%d" % n for n in range(5 * at, 5 * at + 5)]) for at in range(4)]
    per_s, tasks = 50, 4
    with pacing_server(per_s, "127.0.0.1") as address, ThreadPoolExecutor(tasks) as pool:

        def send(_task: int) -> list[pa.Array]:
            return list(pace_column(address)(iter(chunks)))

        started = time.monotonic()
        found = list(pool.map(send, range(tasks)))
        took_s = time.monotonic() - started
        stranger = address._replace(secret="guessed")
        with pytest.raises(ValueError, match="could not convert"):
            next(pace_column(stranger)(iter(chunks)))
    assert found == [chunks] * tasks
    assert took_s >= (tasks * 20 - 5) / per_s


MEND = """
from pyspark.sql import functions as f

def mended(letters):
    return letters.withColumn("value", f.concat("value", f.lit("!"))).where("key <> 'drop'")
"""


def letter(key: str, reason: str, to: str | None, attempts: int = 0):
    told = {"reason": reason, "topic": to, "partition": 1, "attempts": attempts or None}
    told |= {"value.length": 1_000_000} if key == "cut" else {"offset": 7, "timestamp": T0 - 5}
    named = [(f"k.dlq.{name}", str(said).encode()) for name, said in told.items() if said]
    return T0, key.encode(), b"v", (*HEADERS, *(named if to else ()))


def test_dead_letters_are_sent_back_once_whatever_is_asked_for_and_whatever_was_killed(
    spark, broker, topic, tmp_path
):
    orders, pays, dlq = (
        create_topic(broker.address, f"{topic}-{name}") for name in ("orders", "pays", "dlq")
    )
    (tmp_path / "mend_letters.py").write_text(MEND)
    letters = [
        letter("a", "too large", orders),
        letter("b", "too large", pays),
        letter("c", "no json", orders, attempts=1),
        letter("d", "no json", orders, attempts=2),
        letter("e", "", None),
        letter("cut", "too large", orders),
        letter("drop", "no json", pays),
    ]
    append(broker.address, dlq, letters)
    asked = Redrive({"kafka.bootstrap.servers": broker.address}, dlq, max_attempts=2)
    large = replace(asked, filter="reason LIKE '%large' AND header['trace'] IS NULL")
    expected = [
        RedriveOutcome(None, None, 0, 0, 0, 1, 0),
        RedriveOutcome(orders, "no json", 1, 0, 1, 0, 0),
        RedriveOutcome(orders, "too large", 1, 0, 0, 0, 1),
        RedriveOutcome(pays, "no json", 1, 0, 0, 0, 0),
        RedriveOutcome(pays, "too large", 1, 0, 0, 0, 0),
    ]
    assert redriven(spark, asked, sends=False) == (expected, 0)
    assert redriven(spark, large)[1] == 2
    back = (*HEADERS, ("k.dlq.attempts", b"1"))
    assert [r[1:] for r in held(broker, orders, 1)[0]] == [(b"a", b"v", back)]
    assert redriven(spark, large)[1] == 0
    # The remaining letters, repaired: one is new, and those already sent are not sent again.
    append(broker.address, dlq, [letter("f", "too large", pays)])
    mends = replace(asked, fix=f"{tmp_path}/mend_letters.py:mended", keep_timestamps=True)
    assert redriven(spark, mends)[1] == 2
    again = (*HEADERS, ("k.dlq.attempts", b"2"))
    assert [r[1:] for r in held(broker, orders, 1)[0][1:]] == [(b"c", b"v!", again)]
    assert [r[1:] for r in held(broker, pays, 1)[0]] == [(b"b", b"v", back), (b"f", b"v!", back)]
    assert [r[0] for r in held(broker, pays, 1)[0]][1] == T0 - 5
    # A receipt in an open transaction, which cannot be read yet, is waited for.
    settings = {"bootstrap.servers": broker.address, "transactional.id": dlq}
    with Blocking(Producer, settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(dlq, None).result()
        with pytest.raises(Refused, match=f"a transaction in {dlq}-0 has been open"):
            redriven(spark, replace(asked, wait_s=0.01))
        producer.abort_transaction()
    assert redriven(spark, replace(asked, to=orders, filter="letter.offset = 4"))[1] == 1
